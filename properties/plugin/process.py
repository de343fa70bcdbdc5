"""Makes a process ready to judge: threads, memory, garbage collection."""

from __future__ import annotations

import ctypes
import gc
import sys

import torch

# Parameters of glibc's mallopt.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3


def prepare(device: str, is_worker: bool) -> None:
    """Call once, before the first law."""
    if is_worker or device == "cpu":  # small tensors are faster on one thread, above all on busy cores
        torch.set_num_threads(1)
    keep_freed_memory()
    torch.zeros(1, device=device)  # the first use of a GPU takes seconds, which no law should be charged with
    gc.collect()
    gc.freeze()  # imported modules stay; otherwise each collection walks all of torch, which takes 0.2 s


def keep_freed_memory() -> None:
    """Have malloc keep what is freed, up to 1 GiB, instead of returning it to the system.

    The oracle's matrices have megabytes and live for one operation; mapping fresh pages for each takes a third of its time.
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if hasattr(libc, "mallopt"):  # glibc only
        libc.mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the largest that it takes; larger blocks are mapped as before
        libc.mallopt(M_TRIM_THRESHOLD, 1 << 30)
        libc.mallopt(M_TOP_PAD, 64 << 20)
