"""What is judged: the plug-in contract, and our own implementations, which enter by the same door as anyone's."""

from impls.contract import Absent, ContractError, Implementation, Precision, Supports

__all__ = ["Absent", "ContractError", "Implementation", "Precision", "Supports"]
