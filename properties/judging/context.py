"""The loss of the GPU context: after an illegal access, a process can launch no more kernels."""

from __future__ import annotations

from flash_attest.properties.cases.case import Case
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.trial import Trial


class ContextLost(BaseException):
    """The GPU context is lost. This process can launch no more kernels, so Hypothesis must stop."""

    def __init__(self, broken: LawBroken, case: Case):
        super().__init__(broken.headline)
        self.broken, self.case = broken, case


def check_context(trial: Trial, broken: LawBroken, test: str) -> None:
    """If no kernel can be launched any more, record the test and case, and raise ContextLost."""
    if not trial.caller.device_works():
        trial.known.lost_in, trial.known.lost_case = test, str(trial.case)
        raise ContextLost(broken, trial.case) from None
