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
    LawBroken,
    OutOfMemory,
    Raises,
    Reason,
    Undecided,
    is_out_of_memory,
    words_of,
)
from flash_attest.properties.machine.clock import Clock, Work
from flash_attest.properties.progress import NOW

ADVICE = "the implementation declares that it supports this case: support it, or declare less"
MESSAGE_WIDTH = 200  # characters of an exception that a note mentions
MESSAGE_LINES = 8  # kept lines of an exception whose first line ends with ":", like a compiler's


@contextmanager
def judged(phase: Callable[[], Phase], case: Case, device: str, clock: Clock) -> Iterator[None]:
    """Mark a block in which every exception comes from the implementation.

    An exception breaks the law, or leaves it undecided.

    phase: returns the phase of the implementation when it raises.
    """
    try:
        with clock.counts(Work.RUNNING), NOW.call():
            yield
    except Undecided as error:  # from --untrusted; an implementation may also raise this, but cannot choose the reason
        raise Undecided(str(error)) from error
    except ContractError as error:
        raise LawBroken(error.problems[0], *error.problems[1:]) from error
    except NotCovered as error:
        raise Undecided(str(error), Reason.NOT_COVERED) from error
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and not NOW.isolated:  # Ctrl-C
            raise
        if is_out_of_memory(error) and device_works(device):  # a library may also say this if the GPU does not work
            words = f": {phase().value} raises {type(error).__name__}: {words_of(error)[:MESSAGE_WIDTH]}"
            raise OutOfMemory(f"out of memory on {case}{words}") from error
        first, *others = words_of(error).strip().splitlines() or [""]
        # A first line that ends with ":" announces a compiler's lines, which are kept. Lines after
        # a CUDA error are only PyTorch's advice.
        first = first or _asserted(error)
        if (cause := device_error(device)) and cause not in first:  # a library may say only that its launch failed
            first = f"{first or 'no text'}: {cause}"
        announced = others[:MESSAGE_LINES] if first.endswith(":") else []
        raise Raises(
            f"{phase().value} raises {type(error).__name__}{first and f': {first}'}",
            *announced,
            *frames_of(error),
            ADVICE,
        ) from error


def frames_of(error: BaseException) -> list[str]:
    """Return the first and the last frame of an exception in the implementation."""
    if (there := getattr(error, "frames_in_kernel_process", None)) is not None:  # runner/untrusted
        return list(dict.fromkeys([*there[:1], *there[-1:]]))
    frames = traceback.extract_tb(error.__traceback__)
    inner = frames[1 + max((n for n, f in enumerate(frames) if f.filename == call.__file__), default=-1) :]
    shown = dict.fromkeys(f"at {f.filename}:{f.lineno}, in {f.name}: {f.line}" for f in [*inner[:1], *inner[-1:]])
    return list(shown)


def _asserted(error: BaseException) -> str:
    """Return the source line of an assertion without a message; "" for other errors."""
    frames = traceback.extract_tb(error.__traceback__)
    return frames[-1].line or "" if isinstance(error, AssertionError) and frames[-1].line.startswith("assert") else ""


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
