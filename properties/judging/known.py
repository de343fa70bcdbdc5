"""The results that a process gathers while judging, and keeps until it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import Case
from flash_attest.properties.progress import NOW
from flash_attest.properties.state.patched import Functions, everything
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
    test: the test whose case is judged now. called: the test, the case and the phase of the last
    call, if there was one.
    functions: what no call must replace, as it was before the law or contract check.
    """

    lost_in: str = ""
    lost_case: str = ""
    no_sanitizer: str = ""
    waits_in_vain: int = 0
    test: str = ""
    called: tuple[str, Case, str] | None = None
    functions: Functions | None = None
    # By the implementation's id, and the key or the cases. The implementation is stored, too, so
    # that its id is not reused.
    _contracts: dict[tuple[int, str], tuple[Implementation, Tried | Undecided]] = field(default_factory=dict)
    _computed: dict[tuple[int, str], tuple[Implementation, list[str]]] = field(default_factory=dict)
    _named: dict[str, set[str]] = field(default_factory=dict)  # implementation -> reported changes of global state

    def computed(self, impl: Implementation, key: str, find: Callable[[], list[str]]) -> list[str]:
        """Return what find() returned for this implementation and key at the first time."""
        if (id(impl), key) not in self._computed:
            self._computed[id(impl), key] = (impl, find())
        return self._computed[id(impl), key][1]

    def contract(self, impl: Implementation, key: str) -> Tried | Undecided | None:
        """Return the result of trying the contract; None if it was not tried.

        key: the device, or `Plan.contract_key` if a part of it may be tried.
        """
        return self._contracts.get((id(impl), key), (impl, None))[1]

    def keep_contract(self, impl: Implementation, key: str, tried: Tried | Undecided) -> None:
        """Store the result for `contract`, from this process or another one."""
        self._contracts[id(impl), key] = (impl, tried)

    def calls(self, case: Case, phase: str) -> None:
        """Record the call in progress, as its error may show only later."""
        self.called = self.test, case, phase

    def begins(self, test: str) -> None:
        """Begin to judge: a law, or the contract check.

        A process of its own keeps what it knew before, so it also sees what a thread replaced since
        then. Elsewhere, others may replace functions in between: for example fixtures of tests.
        """
        self.test = test
        if self.functions is None or not self.functions.complete or not NOW.isolated:
            self.functions = everything()

    def replaced(self, *, all_places: bool = True) -> list[str]:
        """Return the functions that calls have replaced since the law began. They are restored."""
        return self.functions.put_back(all_places=all_places) if self.functions else []

    def name(self, impl: str, changes: Iterable[Change]) -> None:
        """Record changes that the contract check reported, so that no law reports them again."""
        self._named.setdefault(impl, set()).update(change.name for change in changes)

    def unnamed(self, impl: str, changes: Iterable[Change]) -> list[Change]:
        """Return the changes that the contract check has not reported.

        Few calls make such a change, so the check may not have seen it.
        """
        return [change for change in changes if change.name not in self._named.get(impl, ())]
