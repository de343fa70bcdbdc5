"""Memory of a GPU that several workers use: who needs much of it takes turns, and who finds none waits for the others."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import torch
from filelock import FileLock

from emulator.build_cache import cache_folder
from properties.failures import OutOfMemory

KEPT = 4 << 30  # bytes that torch may keep from one law to the next
PAUSES = (1.0, 3.0, 9.0)  # seconds before another try where memory runs out: no law takes much of it for longer
MOST_IN_VAIN = 3  # times that this did not help a process, after which it waits no more: what it wants is too much
Result = TypeVar("Result")

_in_vain = 0


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


def when_memory_suffices(device: str, attempt: Callable[[], Result]) -> Result:
    """attempt(), begun anew where the memory of a GPU runs out: other workers use it for a while, and give it back.

    Raises OutOfMemory where it does not suffice then either, and at once on a CPU, where a process has a limit of its own.
    """
    global _in_vain
    for pause in PAUSES if device == "cuda" and _in_vain < MOST_IN_VAIN else ():
        with suppress(OutOfMemory):
            return attempt()
        gc.collect()  # frames of the exception, which hold tensors
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        time.sleep(pause)
    try:
        return attempt()
    except OutOfMemory:
        _in_vain += 1
        raise
