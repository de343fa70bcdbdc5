"""A pytest run that calls an implementation on some cases, without laws (runner/alone.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from flash_attest.impls import Implementation


class Calls:
    """A pytest plug-in that calls an implementation once for each case, instead of a run.

    judged: whether results should be within the error budget.
    """

    def __init__(self, device: str, name: str, cases: list[str], judged: bool):
        self.device, self.name, self.cases, self.judged = device, name, cases, judged
        self.problem = f"{name} was not called"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Make the calls in a run of the suite.

        This comes after the suite's plug-in, which enables the emulator before Triton and Numba are
        imported.
        """
        if hasattr(session.config, "attest"):
            entries = session.config.attest.chosen.entries
            self._call(next(entry.impl for entry in entries if entry.name == self.name))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Make the calls in another repository, once the tests under @attention_laws have been
        collected.
        """
        from flash_attest.properties.machine.gpus import emulate_if_no_gpu
        from flash_attest.runner.plugin.own import bound_law_of

        emulate_if_no_gpu(self.device)
        bound = filter(None, map(bound_law_of, session.items))
        self._call(next(law.impl for law in bound if law.impl.name == self.name))

    def _call(self, impl: Implementation) -> None:
        from flash_attest.properties.cases.case import parse_case  # imports torch, which takes seconds
        from flash_attest.properties.checks.comparisons import check_budget
        from flash_attest.properties.failures import LawBroken, Undecided
        from flash_attest.properties.trial import Trial

        try:
            for case in self.cases:
                trial = Trial(impl, parse_case(case), self.device, judges_state=False)
                got = trial.run(backward=trial.backward)
                if self.judged:
                    check_budget(trial, got)
            self.problem = ""
        except (LawBroken, Undecided) as error:
            self.problem = str(error)
        pytest.exit("called", returncode=0)
