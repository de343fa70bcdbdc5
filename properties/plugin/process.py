"""What a process that judges does beside judging: threads, memory, garbage collection, compilers that several workers use."""

from __future__ import annotations

import ctypes
import functools
import gc
import hashlib
import sys

import torch
from filelock import FileLock

from emulator.build_cache import cache_folder, counted

# Parameters of glibc's mallopt.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
KEPT_ON_GPU = 4 << 30  # bytes that torch may keep from one law to the next


def prepare(device: str, is_worker: bool) -> None:
    """Call once, before the first law."""
    if is_worker or device == "cpu":  # small tensors are faster on one thread, above all on busy cores
        torch.set_num_threads(1)
    keep_freed_memory()
    if is_worker and device == "cuda":
        compile_each_triton_kernel_once()
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


def give_back_gpu_memory() -> None:
    """Call after each law: torch keeps what is freed, in pieces of all sizes, while other workers need the memory."""
    if torch.cuda.is_initialized() and torch.cuda.memory_reserved() > KEPT_ON_GPU:
        torch.cuda.empty_cache()


def compile_each_triton_kernel_once() -> None:
    """Have workers wait for each other: with Triton's cache alone several make the same kernel at the same time.

    Replaces triton.compiler.compile, which Triton looks up at the first call of each kernel.
    """
    compiler = sys.modules.get("triton.compiler")
    if compiler is None or hasattr(compiler.compile, "__wrapped__"):
        return
    compile_ = compiler.compile

    @functools.wraps(compile_)
    def compile_alone(src, *args, **kwargs):
        try:
            name = hashlib.sha256(f"{src.hash()} {kwargs.get('options')}".encode()).hexdigest()[:2]
        except (AttributeError, TypeError):  # not a source as this version of Triton makes it
            return compile_(src, *args, **kwargs)
        lock = FileLock(cache_folder() / f"triton-{name}.lock")
        with counted():  # waiting for another worker; Triton itself counts the rest (properties/clock.py)
            lock.acquire()
        try:
            return compile_(src, *args, **kwargs)
        finally:
            lock.release()

    compiler.compile = compile_alone
