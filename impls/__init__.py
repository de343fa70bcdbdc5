"""The plug-in contract and our own implementations, which are registered as a plug-in's are."""

from flash_attest.impls.contract.record import Absent, ContractError, Implementation, Precision, Supports

__all__ = ["Absent", "ContractError", "Implementation", "Precision", "Supports"]
