"""A run of pytest that calls one implementation on some cases, and judges nothing (runner/alone.py)."""

from __future__ import annotations

import pytest


class Calls:
    """A plug-in of pytest that calls an implementation once for each case, in place of a run."""

    def __init__(self, device: str, name: str, cases: list[str]):
        self.device, self.name, self.cases = device, name, cases
        self.problem = f"{name} was not called"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """After conftest.py, which has the emulator take kernels before Triton and Numba are imported."""
        from flash_attest.properties.cases.case import parse_case  # imports torch, which conftest.py leaves for later
        from flash_attest.properties.failures import LawBroken, Undecided
        from flash_attest.properties.trial import Trial

        impl = next(entry.impl for entry in session.config.attest.entries if entry.name == self.name)
        try:
            for case in self.cases:
                trial = Trial(impl, parse_case(case), self.device, judges_state=False)
                trial.run(backward=trial.backward)
            self.problem = ""
        except (LawBroken, Undecided) as error:
            self.problem = str(error)
        pytest.exit("called", returncode=0)
