"""Whether this process still has its GPU: after an illegal access it can launch nothing more."""

from __future__ import annotations

from flash_attest.properties.cases.case import Case
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.trial import Trial


class ContextLost(BaseException):
    """The GPU context is lost: this process can launch nothing more, and Hypothesis must stop."""

    def __init__(self, broken: LawBroken, case: Case):
        super().__init__(broken.headline)
        self.broken, self.case = broken, case


_lost_in = _lost_case = ""  # the test, and its case, in which this process lost its GPU context


def lost_in() -> str:
    """The test in which this process lost its GPU context; "" while it has one."""
    return _lost_in


def lost_case() -> str:
    """The case in which it did."""
    return _lost_case


def check_context(trial: Trial, broken: LawBroken, test: str) -> None:
    """Raise ContextLost if nothing can be launched after this failure."""
    if not trial.caller.device_works():
        global _lost_in, _lost_case
        _lost_in, _lost_case = test, str(trial.case)
        raise ContextLost(broken, trial.case) from None
