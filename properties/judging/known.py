"""What a process has found out while it judges, and remembers until it ends."""

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
    """One for each process that judges. A plan has it, so it reaches whatever judges by that plan.

    lost_in, lost_case: the test and its case in which this process lost its GPU context; "" while it has one.
    no_sanitizer: why the tools of compute-sanitizer do not run on this machine; "" while they do, as far as is known.
    waits_in_vain: how many times in a row a wait for memory of the GPU has not helped.
    """

    lost_in: str = ""
    lost_case: str = ""
    no_sanitizer: str = ""
    waits_in_vain: int = 0
    # By id and device. The implementation is kept with the answer, so that its id is not used again.
    _contracts: dict[tuple[int, str], tuple[Implementation, Tried | Undecided]] = field(default_factory=dict)
    _named: dict[str, set[str]] = field(default_factory=dict)  # implementation -> the state that its calls change

    def contract(self, impl: Implementation, device: str) -> Tried | Undecided | None:
        """What trying the contract out has found; None if nobody has tried it."""
        return self._contracts.get((id(impl), device), (impl, None))[1]

    def keep_contract(self, impl: Implementation, device: str, tried: Tried | Undecided) -> None:
        """Have `contract` answer with this: it was found here, or in another process."""
        self._contracts[id(impl), device] = (impl, tried)

    def name(self, impl: str, changes: Iterable[Change]) -> None:
        """Remember what the contract check has named of an implementation: no law needs to name it again."""
        self._named.setdefault(impl, set()).update(change.thing for change in changes)

    def unnamed(self, impl: str, changes: Iterable[Change]) -> list[str]:
        """The changes that the contract check did not see, as few calls make them, in words."""
        return [change.text for change in changes if change.thing not in self._named.get(impl, ())]
