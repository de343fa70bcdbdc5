"""Blames calls for what shows only later, in our own code: a lost GPU, a replaced function.

After an illegal access, a process can launch no more kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flash_attest.properties.calling import raised
from flash_attest.properties.calling.raised import ADVICE
from flash_attest.properties.cases.case import Case
from flash_attest.properties.failures import (
    AnotherCase,
    LawBroken,
    OutOfMemory,
    Raises,
    Reason,
    Replaces,
    Undecided,
    words_of,
)
from flash_attest.properties.judging.known import Known
from flash_attest.properties.state.patched import words
from flash_attest.properties.trial import Trial

RESTORE = "the suite calls it, too: change your own module instead, or put it back before the call returns"


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


@contextmanager
def blaming_calls(trial: Trial, test: str) -> Iterator[None]:
    """Mark the block in which a test judges a trial.

    If the suite's own code raises in it because of an earlier call, this raises what names the
    call instead, as `blame` does.
    """
    trial.known.test = test
    try:
        yield
    except (LawBroken, AnotherCase):
        raise
    except Exception as error:
        if not isinstance(error, Undecided) or isinstance(error, OutOfMemory):
            blame(trial.known, trial.device, error)
        raise


def blame(known: Known, device: str, error: Exception) -> None:
    """Raise what names the call that made the suite raise `error`. Returns if there is none.

    Raises ContextLost if a call of this test lost the GPU, Undecided if it was lost earlier, and
    LawBroken if a call replaced functions.
    """
    noticed = f"noticed later, when the suite raised {type(error).__name__}: {_first_line(error)}"
    if cause := raised.device_error(device):
        raise _lost(known, cause, noticed) from error
    if names := known.replaced():
        raise replaces(names, noticed) from error


def replaces(names: list[str], *observed: str) -> Replaces:
    """Return the failure of calls that replaced these functions."""
    return Replaces(words("a call", names), *observed, RESTORE)


def check_afterwards(known: Known, device: str) -> None:
    """Raise as `blame` does if a GPU was lost, or functions were replaced, and nothing raised."""
    if not known.lost_in and (cause := raised.device_error(device)):
        raise _lost(known, cause, "noticed after the last call: no call raised")
    if names := known.replaced():
        raise replaces(names, "noticed after the last call, so results that it compared mean nothing")


def _lost(known: Known, cause: str, noticed: str) -> ContextLost | Undecided:
    if known.called is None:
        return Undecided(f"the GPU does not work, before any call of this process: {cause}", Reason.CONTEXT_LOST)
    known.lost_in, case, phase = known.called
    known.lost_case = str(case)
    if known.lost_in != known.test:
        return Undecided(f"the GPU context of this process was lost in {known.lost_in}", Reason.CONTEXT_LOST)
    return ContextLost(Raises(f"{phase} loses the GPU: {cause}", noticed, ADVICE), case)


def _first_line(error: Exception) -> str:
    return next(iter(words_of(error).strip().splitlines()), "")
