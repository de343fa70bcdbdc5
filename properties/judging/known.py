"""The results that a process gathers while judging, and keeps until it ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.state.thing import Change

if TYPE_CHECKING:
    from flash_attest.properties.failures import Undecided
    from flash_attest.properties.judging.conformance import Tried


@dataclass
class Known:
    """The results that one judging process keeps. All judgements with the same plan share them.

    lost_in, lost_case: the test and the case in which this process lost its GPU context, or "".
    no_sanitizer: why compute-sanitizer does not run on this machine; "" if it does, or has not been
    tried.
    waits_in_vain: how many times in a row a wait for GPU memory has not helped.
    """

    lost_in: str = ""
    lost_case: str = ""
    no_sanitizer: str = ""
    waits_in_vain: int = 0
    # By the implementation's id and the device. The implementation is stored, too, so that its id
    # is not reused.
    _contracts: dict[tuple[int, str], tuple[Implementation, Tried | Undecided]] = field(default_factory=dict)
    _named: dict[str, set[str]] = field(default_factory=dict)  # implementation -> reported changes of global state

    def contract(self, impl: Implementation, device: str) -> Tried | Undecided | None:
        """Return the result of trying the contract; None if it was not tried."""
        return self._contracts.get((id(impl), device), (impl, None))[1]

    def keep_contract(self, impl: Implementation, device: str, tried: Tried | Undecided) -> None:
        """Store the result for `contract`, from this process or another one."""
        self._contracts[id(impl), device] = (impl, tried)

    def name(self, impl: str, changes: Iterable[Change]) -> None:
        """Record changes that the contract check reported, so that no law reports them again."""
        self._named.setdefault(impl, set()).update(change.thing.name for change in changes)

    def unnamed(self, impl: str, changes: Iterable[Change]) -> list[Change]:
        """Return the changes that the contract check has not reported.

        Few calls make such a change, so the check may not have seen it.
        """
        return [change for change in changes if change.thing.name not in self._named.get(impl, ())]
