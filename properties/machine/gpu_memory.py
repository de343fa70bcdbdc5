"""Shares GPU memory among workers: large cases take turns, and other cases wait for memory."""

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
PAUSES = (1, 4, 15)  # seconds before the next attempts when memory runs out; other workers hold much of it for seconds
MOST_IN_VAIN = 3  # after this many useless waits in a row, a process stops waiting: it needs too much memory
Answer = TypeVar("Answer")


@contextmanager
def alone_on_the_gpu(device: str) -> Iterator[None]:
    """Let one worker at a time enter this block: a tensor of 2^31 elements takes 4 to 9 GiB.

    An implementation may also copy such tensors.
    """
    name = f"{torch.cuda.get_device_properties(device).uuid}"
    with FileLock(cache_folder() / f"large-{name}.lock"):
        yield
        torch.cuda.empty_cache()


def give_back() -> None:
    """Free unused GPU memory. Call this after each law.

    torch keeps freed memory, in pieces of all sizes, which other workers may need.
    """
    if torch.cuda.is_initialized() and torch.cuda.memory_reserved() > KEPT:
        with suppress(RuntimeError):  # the law has lost the GPU, which its verdict says
            torch.cuda.empty_cache()


def when_memory_suffices(device: str, known: Known, attempt: Callable[[], Answer]) -> Answer:
    """Return attempt(). If GPU memory runs out, wait and call it again.

    Other workers may hold much memory for a while and then free it. known: counts the waits that
    did not help.

    Raises OutOfMemory if memory still does not suffice, and at once on a CPU, where each process
    has its own limit.
    """
    if device != "cuda" or known.waits_in_vain == MOST_IN_VAIN:
        return attempt()
    with suppress(OutOfMemory):
        return attempt()
    for pause in PAUSES:
        gc.collect()  # frees the frames of the exception, which hold tensors
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
