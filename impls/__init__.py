"""What is judged: the plug-in contract, and our own implementations, which are registered in the same way as a plug-in's."""

from flash_attest.impls.contract.record import Absent, ContractError, Implementation, Precision, Supports

__all__ = ["Absent", "ContractError", "Implementation", "Precision", "Supports"]
