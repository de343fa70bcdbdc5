"""Shares GPU memory among the processes that judge: a case without enough memory is tried again."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import torch

from flash_attest.properties.failures import OutOfMemory, Reason, Undecided, is_out_of_memory
from flash_attest.properties.machine.gpu_turns import turns_of
from flash_attest.properties.progress import NOW
from flash_attest.texts import gib

if TYPE_CHECKING:
    from flash_attest.properties.judging.known import Known

KEPT = 1 << 30  # bytes that torch may keep from one law to the next
ENOUGH = 16 << 30  # free bytes: a process that is alone needs no more for a drawn case, unless the kernel wastes memory
PAUSES = (1, 4)  # seconds before the next attempts when memory runs out; other workers hold much of it for seconds
MOST_IN_VAIN = 3  # after this many useless waits in a row, a process stops waiting: it needs too much memory
Answer = TypeVar("Answer")


def when_memory_suffices(device: str, known: Known, attempt: Callable[[], Answer], *, waits: bool = True) -> Answer:
    """Return attempt(). If GPU memory runs out, wait and call it again, at last alone on the GPU.

    Other workers may hold much memory for a while and then free it. known: counts the waits that
    did not help, unless the GPU is too small. waits: whether to make more than one attempt.

    Raises OutOfMemory if memory still does not suffice, and at once on a CPU, where each process
    has its own limit. Its reason is Reason.GPU_MEMORY if less than ENOUGH was free.
    """
    if device != "cuda":
        return attempt()
    if not waits or known.waits_in_vain == MOST_IN_VAIN:
        return _beside_others(device, attempt)
    for pause in PAUSES:
        with suppress(OutOfMemory):
            return _beside_others(device, attempt)
        _free()
        _wait(pause)
    with suppress(OutOfMemory):
        return _beside_others(device, attempt)
    with _alone(device) as free:
        try:
            answer = attempt()
        except OutOfMemory as error:
            too_small = free is not None and free < ENOUGH
            known.waits_in_vain += not too_small
            told = "" if free is None else f", alone on the GPU with {gib(free, 1)} free"
            why = Reason.GPU_MEMORY if too_small else Reason.RESOURCES
            raise OutOfMemory(f"{error}{told}", why) from None
    known.waits_in_vain = 0
    return answer


def first_that_fits(what: str, attempts: Sequence[Callable[[], Answer]]) -> tuple[int, Answer]:
    """Return (number, answer) of the first attempt for which the GPU's memory suffices.

    This is for tensors of 2^31 elements, which take 4 to 9 GiB each, and which an implementation
    may copy. Only one process at a time is in here. It makes the first attempt beside the laws of
    other processes. If memory runs out, it makes all of them, one after another, alone on the GPU.
    what: the sizes, for the message.

    Raises Undecided with Reason.GPU_MEMORY if not even the last one fits.
    """
    with turns_of("cuda").large():
        try:
            with suppress(OutOfMemory):
                return 0, attempts[0]()
            with _alone("cuda") as free:
                for number, attempt in enumerate(attempts):
                    try:
                        return number, attempt()
                    except OutOfMemory as error:
                        _, _, text = str(error).partition(": ")  # after the sizes before they were enlarged
                    _free()
        finally:
            _free()
    text = f"{what} needs more than the {gib(free, 1)} of GPU memory that are free: {text}"
    raise Undecided(text, Reason.GPU_MEMORY)


def refusals(device: str) -> int:
    """Return how often torch has refused GPU memory to this process; 0 on a CPU."""
    if device != "cuda":
        return 0
    with suppress(RuntimeError):  # the GPU is lost, which the next call says
        return torch.cuda.memory_stats_as_nested_dict().get("num_ooms", 0)
    return 0


def _beside_others(device: str, attempt: Callable[[], Answer]) -> Answer:
    """Return attempt(), made while other processes use the GPU, too.

    torch keeps freed memory, in pieces of all sizes. It is given back if it is much, or if a
    process waits to be alone.
    """
    if not torch.cuda.is_initialized():  # the attempt is to initialise it
        return attempt()
    turns = turns_of(device)
    if turns.wanted():
        _empty_cache()
    try:
        with turns.shared():
            return attempt()
    finally:
        if torch.cuda.memory_reserved() > KEPT or turns.wanted():
            _empty_cache()


@contextmanager
def _alone(device: str) -> Iterator[int | None]:
    """Be alone on the GPU in this block. Yields the bytes of memory that are free.

    Yields 0 if the GPU has not even the memory for a context of this process, and None if CUDA did
    not start, so that nobody can be asked for a turn.
    """
    _free()
    if not torch.cuda.is_initialized():
        yield None
        return
    with turns_of(device).alone():
        yield _free_bytes()


def _free() -> None:
    """Free unused memory, and the tensors in the frames of exceptions that were caught."""
    gc.collect()
    if torch.cuda.is_initialized():
        _empty_cache()


def _free_bytes() -> int:
    """Return how many bytes of the GPU are free; 0 if they do not suffice to ask."""
    try:
        return torch.cuda.mem_get_info()[0]
    except RuntimeError as error:
        if is_out_of_memory(error):
            return 0
        raise


def _empty_cache() -> None:
    with suppress(RuntimeError):  # the case has lost the GPU, which its verdict says
        torch.cuda.empty_cache()


def _wait(seconds: int) -> None:
    for _ in range(seconds):
        NOW.lives()
        time.sleep(1)
