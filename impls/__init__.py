"""What is judged: the plug-in contract, and our own implementations, which enter by the same door as anyone's."""

from impls.contract import ContractError, Implementation, Precision, Supports

__all__ = ["ContractError", "Implementation", "Precision", "Supports"]
