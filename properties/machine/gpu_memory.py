"""Memory of a GPU that several workers use: who needs much of it takes turns, and who finds none waits for the others."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import torch
from filelock import FileLock

from flash_attest.emulator.build_cache import cache_folder
from flash_attest.properties.failures import OutOfMemory
from flash_attest.properties.progress import NOW

if TYPE_CHECKING:
    from flash_attest.properties.judging.known import Known

KEPT = 4 << 30  # bytes that torch may keep from one law to the next
PAUSES = (1, 4, 15)  # seconds before another try where memory runs out. A worker takes much of it for some seconds
MOST_IN_VAIN = 3  # times in a row that this did not help a process, after which it waits no more: it wants too much
Answer = TypeVar("Answer")


@contextmanager
def alone_on_the_gpu(device: str) -> Iterator[None]:
    """One worker at a time: tensors of 2^31 elements take 4 to 9 GiB each, and an implementation may make copies."""
    name = f"{torch.cuda.get_device_properties(device).uuid}"
    with FileLock(cache_folder() / f"large-{name}.lock"):
        yield
        torch.cuda.empty_cache()


def give_back() -> None:
    """Call after each law: torch keeps what is freed, in pieces of all sizes, while other workers need the memory."""
    if torch.cuda.is_initialized() and torch.cuda.memory_reserved() > KEPT:
        torch.cuda.empty_cache()


def when_memory_suffices(device: str, known: Known, attempt: Callable[[], Answer]) -> Answer:
    """attempt(), begun anew where the memory of a GPU runs out: other workers use it for a while, and give it back.

    known: counts how often that was in vain.
    Raises OutOfMemory where it does not suffice then either, and at once on a CPU, where a process has a limit of its own.
    """
    if device != "cuda" or known.waits_in_vain == MOST_IN_VAIN:
        return attempt()
    with suppress(OutOfMemory):
        return attempt()
    for pause in PAUSES:
        gc.collect()  # frames of the exception, which hold tensors
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        _wait(pause)
        try:
            answer = attempt()
        except OutOfMemory:
            if pause == PAUSES[-1]:
                known.waits_in_vain += 1
                raise
        else:
            known.waits_in_vain = 0
            return answer


def _wait(seconds: int) -> None:
    for _ in range(seconds):
        NOW.lives()
        time.sleep(1)
