"""The plug-in contract, and our own implementations, which use it as plug-ins do."""

from flash_attest.impls.contract.precision import Precision
from flash_attest.impls.contract.record import Absent, ContractError, Implementation, KnownFailure, NotInstalled
from flash_attest.impls.contract.supports import Supports

__all__ = ["Absent", "ContractError", "Implementation", "KnownFailure", "NotInstalled", "Precision", "Supports"]
