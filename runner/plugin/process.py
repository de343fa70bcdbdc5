"""What a process that judges does beside judging: threads, memory, garbage collection, compilers that several workers use."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import hashlib
import os
import sys
from pathlib import Path

import torch
from filelock import FileLock

from flash_attest.emulator.build_cache import cache_folder, counted
from flash_attest.emulator.errors import EmulatorError
from flash_attest.properties.failures import undecided_without_memory
from flash_attest.properties.judging.known import Known
from flash_attest.properties.machine.cuda_driver import yield_while_waiting
from flash_attest.properties.machine.gpu_memory import when_memory_suffices
from flash_attest.properties.machine.gpus import emulate_if_no_gpu
from flash_attest.properties.progress import NOW
from flash_attest.runner.isolation import memory

# Parameters of glibc's mallopt.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
INDUCTORS_RECURSION = 2000  # Python's recursion limit while TorchInductor compiles, and after it


def prepare_to_fork() -> None:
    """Call once, in the process that starts judging processes, or judges: they inherit what this does."""
    keep_freed_memory()
    keep_triton_in_one_folder()
    gc.collect()
    gc.freeze()  # imported modules stay; otherwise each collection walks all of torch, which takes 0.2 s


def prepare(device: str, is_worker: bool) -> dict:
    """Call in a process that judges, before its first law. Gives what there is to say about the device.

    device "cpu" where there is a GPU: the process sees none, so that kernels in Triton and Numba run in the emulator.
    """
    emulate_if_no_gpu(device)  # in somebody's repository nothing has done so before
    if NOW.isolated:
        memory.limit(device)
    # Small tensors are faster on one thread, above all on busy cores. And a fork does not have the threads of OpenMP that its
    # parent may have started, when a plug-in was imported say: it would wait for them for ever.
    if is_worker or device == "cpu" or NOW.isolated:
        torch.set_num_threads(1)
    # torch.compile raises it and leaves it so, which is no implementation's doing.
    sys.setrecursionlimit(max(sys.getrecursionlimit(), INDUCTORS_RECURSION))
    when_memory_suffices(
        device, Known(), lambda: use(device)
    )  # without memory it does not come up, so nothing is counted
    if device == "cuda":
        yield_while_waiting()
        compile_each_triton_kernel_once()
    return {"device_name": torch.cuda.get_device_name() if device == "cuda" else ""}


@undecided_without_memory("when the process first used the GPU")
def use(device: str) -> None:
    """Use a device. The first use of a GPU takes seconds, which no law should be charged with."""
    torch.zeros(1, device=device)


def keep_freed_memory() -> None:
    """Have malloc keep what is freed, up to 1 GiB, instead of returning it to the system.

    The oracle's matrices have megabytes and live for one operation; mapping fresh pages for each takes a third of its time.
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if hasattr(libc, "mallopt"):  # glibc only
        libc.mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the largest that it takes; larger blocks are mapped as before
        libc.mallopt(M_TRIM_THRESHOLD, 1 << 30)
        libc.mallopt(M_TOP_PAD, 64 << 20)


def keep_triton_in_one_folder() -> None:
    """Have Triton keep what it compiles where it does by itself, or in our cache if the user's home cannot be written to.

    TorchInductor would set another folder in a process where it compiles (torch_flex): from then on every kernel of any
    other implementation would be compiled again there.
    """
    if "TRITON_CACHE_DIR" in os.environ:
        return
    with contextlib.suppress(EmulatorError):  # our cache cannot be written to either, which the first kernel says
        home = Path(os.environ.get("TRITON_HOME") or os.path.expanduser("~"))
        folder = home / ".triton"
        if "TRITON_HOME" not in os.environ and not os.access(folder if folder.exists() else home, os.W_OK):
            folder = cache_folder() / ".triton"
        os.environ["TRITON_CACHE_DIR"] = str(folder / "cache")


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
        with counted():  # waiting for another worker; Triton itself counts the rest (properties/machine/clock.py)
            lock.acquire()
        try:
            return compile_(src, *args, **kwargs)
        finally:
            lock.release()

    compiler.compile = compile_alone
