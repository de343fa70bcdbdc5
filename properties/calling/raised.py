"""Exceptions of the implementation: their meaning for a law, their origin, their effects."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from flash_attest.emulator.errors import NotCovered
from flash_attest.impls import ContractError
from flash_attest.impls.contract import call
from flash_attest.impls.contract.call import Phase
from flash_attest.properties.cases.case import Case
from flash_attest.properties.failures import (
    WITHOUT_REASON,
    LawBroken,
    OutOfMemory,
    Raises,
    Reason,
    Undecided,
    is_out_of_memory,
)
from flash_attest.properties.machine.clock import Clock, Work
from flash_attest.properties.machine.gpu_memory import refusals
from flash_attest.properties.progress import NOW
from flash_attest.texts import cut, frames_of, traceback_of, type_name, words_of

ADVICE = "the implementation declares that it supports this case: support it, or declare less"
MESSAGE_WIDTH = 200  # characters of an exception that a note mentions
LONGEST_LINE = 1000  # characters of a line of an exception
MESSAGE_LINES = 8  # kept lines of an exception whose first line ends with ":", like a compiler's


@contextmanager
def judged(phase: Callable[[], Phase], case: Case, device: str, clock: Clock) -> Iterator[None]:
    """Mark a block in which every exception comes from the implementation.

    An exception breaks the law, or leaves it undecided. Its text is code of the implementation,
    too: it is read while the call is timed.

    phase: returns the phase of the implementation when it raises.
    """
    refused = refusals(device)
    with clock.counts(Work.RUNNING), NOW.call():
        try:
            yield
        except BaseException as error:
            if issubclass(type(error), KeyboardInterrupt) and not NOW.isolated:  # Ctrl-C
                raise
            NOW.enters(f"{phase().value} raises {type_name(error)}, whose __str__")
            text = words_of(error)
            NOW.enters(phase().value)
            try:
                more_refused = refusals(device) > refused
                translated = _translated(error, text, phase().value, case, device, more_refused=more_refused)
            except BaseException:  # isinstance and getattr may run code of the exception's class, too
                translated = Raises(f"{phase().value} raises {type_name(error)}{text and f': {text}'}", ADVICE)
            # Whatever the frames hold is deleted now: a __del__ is code of the implementation, too.
            traceback.clear_frames(traceback_of(error))
            raise translated from _plain(error)


def _plain(error: BaseException) -> BaseException | None:
    """Return an exception of Python or of ours that holds only text, without its frames; else None.

    mutants/judging.py reads in it whether an edit compiled.
    """
    module = type(error).__module__  # a class may set it to anything
    if module != "builtins" and not (isinstance(module, str) and module.startswith("flash_attest.")):
        return None
    return error.with_traceback(None) if all(type(each) is str for each in error.args) else None


def _translated(
    error: BaseException, text: str, phase: str, case: Case, device: str, *, more_refused: bool
) -> LawBroken | Undecided:
    """Return what an exception of the implementation means for a law. text: of the exception.
    more_refused: whether torch has refused GPU memory meanwhile.
    """
    # --untrusted raises Undecided. An implementation may also do so, but cannot choose the reason.
    if isinstance(error, Undecided):
        return Undecided(text)
    if isinstance(error, ContractError):
        return LawBroken(*_problems_of(error, text))
    if isinstance(error, NotCovered):
        return Undecided(text, Reason.NOT_COVERED)
    full = is_out_of_memory(error) or (more_refused and WITHOUT_REASON.search(text))
    if full and device_works(device):  # a library may also say this if the GPU does not work
        return OutOfMemory(f"out of memory on {case}: {phase} raises {type_name(error)}: {cut(text, MESSAGE_WIDTH)}")
    first, *others = text.strip().splitlines() or [""]
    # A first line that ends with ":" announces a compiler's lines, which are kept. Lines after a
    # CUDA error are only PyTorch's advice.
    first = cut(first or _asserted(error), LONGEST_LINE)
    if (cause := device_error(device)) and cause not in first:  # a library may say only that its launch failed
        first = f"{first or 'no text'}: {cause}"
    announced = others[:MESSAGE_LINES] if first.endswith(":") else []
    return Raises(
        f"{phase} raises {type_name(error)}{first and f': {first}'}",
        *announced,
        *ends_of(error),
        ADVICE,
    )


def _problems_of(error: ContractError, text: str) -> list[str]:
    """Return the problems that a ContractError names. The implementation may have raised it."""
    problems = getattr(error, "problems", None)
    named = problems if isinstance(problems, list) and all(isinstance(each, str) for each in problems) else []
    return [cut(each, LONGEST_LINE) for each in named[:MESSAGE_LINES]] or [cut(text, LONGEST_LINE)]


def ends_of(error: BaseException) -> list[str]:
    """Return the first and the last frame of an exception in the implementation."""
    if (there := getattr(error, "frames_in_kernel_process", None)) is not None:  # runner/untrusted
        return list(dict.fromkeys([*there[:1], *there[-1:]]))
    frames = frames_of(error)
    inner = frames[1 + max((n for n, f in enumerate(frames) if f.filename == call.__file__), default=-1) :]
    ends = [*inner[:1], *inner[-1:]]
    shown = (cut(f"at {f.filename}:{f.lineno}, in {f.name}: {f.line}", LONGEST_LINE) for f in ends)
    return list(dict.fromkeys(shown))


def _asserted(error: BaseException) -> str:
    """Return the source line of an assertion without a message; "" for other errors."""
    frames = frames_of(error)
    return frames[-1].line if isinstance(error, AssertionError) and frames[-1].line.startswith("assert") else ""


def device_error(device: str) -> str:
    """Return why this process can launch no more kernels, for example an illegal access, or ""."""
    if device != "cuda":
        return ""
    try:
        torch.cuda.synchronize()  # waits for all streams, as the failing kernel may be on another one
        torch.zeros(1, device=device).item()
    except RuntimeError as error:
        return "" if is_out_of_memory(error) else words_of(error).strip().partition("\n")[0]  # a full GPU still works
    return ""


def device_works(device: str) -> bool:
    """Return whether this process can launch more kernels."""
    return not device_error(device)
