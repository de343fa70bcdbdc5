"""The knowledge that a process gains while judging, and keeps until it ends."""

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
    """The knowledge of one process that judges. Everything that judges by its plan sees it.

    lost_in, lost_case: the test and the case in which this process lost its GPU context, or "".
    no_sanitizer: why compute-sanitizer's tools do not run on this machine; "" if not known.
    waits_in_vain: how many times in a row a wait for GPU memory has not helped.
    """

    lost_in: str = ""
    lost_case: str = ""
    no_sanitizer: str = ""
    waits_in_vain: int = 0
    # By id and device. The implementation is kept with the answer, so that its id is not reused.
    _contracts: dict[tuple[int, str], tuple[Implementation, Tried | Undecided]] = field(default_factory=dict)
    _named: dict[str, set[str]] = field(default_factory=dict)  # implementation -> the global state its calls change

    def contract(self, impl: Implementation, device: str) -> Tried | Undecided | None:
        """Return the result of trying the contract; None if it has not been tried."""
        return self._contracts.get((id(impl), device), (impl, None))[1]

    def keep_contract(self, impl: Implementation, device: str, tried: Tried | Undecided) -> None:
        """Set the answer of `contract`, which was found here or in another process."""
        self._contracts[id(impl), device] = (impl, tried)

    def name(self, impl: str, changes: Iterable[Change]) -> None:
        """Remember changes that the contract check has reported: no law reports them again."""
        self._named.setdefault(impl, set()).update(change.thing for change in changes)

    def unnamed(self, impl: str, changes: Iterable[Change]) -> list[str]:
        """Return the changes that the contract check did not see, as few calls make them.

        They are returned in words.
        """
        return [change.text for change in changes if change.thing not in self._named.get(impl, ())]
