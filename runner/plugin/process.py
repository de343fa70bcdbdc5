"""Prepares a process that judges: threads, memory, garbage collection, shared compilers."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import hashlib
import importlib
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
INDUCTORS_RECURSION = 2000  # Python's recursion limit while and after TorchInductor compiles


def prepare_to_fork() -> None:
    """Prepare what judging processes inherit.

    Call this once, in the process that starts them or that judges.
    """
    keep_freed_memory()
    keep_triton_in_one_folder()
    # torch.autograd.grad imports this module and sympy, which takes 2 s in each judging process.
    importlib.import_module("torch.fx.experimental.symbolic_shapes")
    gc.collect()
    gc.freeze()  # otherwise each collection walks all of torch, which takes 0.2 s


def prepare(device: str, is_worker: bool) -> dict:
    """Prepare a judging process before its first law. Returns facts about the device for the
    report.

    device "cpu" on a machine with a GPU: the process sees no GPU, so Triton and Numba kernels run
    in the emulator.
    """
    emulate_if_no_gpu(device)  # in another repository nothing else has called this
    if NOW.isolated:
        memory.limit(device)
    # Small tensors are faster on one thread, above all on busy cores. Also, a fork lacks the OpenMP
    # threads that its parent may have started, for example when a plug-in was imported, and would
    # wait for them forever.
    if is_worker or device == "cpu" or NOW.isolated:
        torch.set_num_threads(1)
    # torch.compile raises the limit permanently. Raise it first, so that no implementation is
    # blamed for it.
    sys.setrecursionlimit(max(sys.getrecursionlimit(), INDUCTORS_RECURSION))
    # Without memory the process does not come up, so no failures need to be counted: use a fresh
    # Known.
    when_memory_suffices(device, Known(), lambda: use(device))
    if device == "cuda":
        yield_while_waiting()
        compile_each_triton_kernel_once()
    return {"device_name": torch.cuda.get_device_name() if device == "cuda" else ""}


@undecided_without_memory("when the process first used the GPU")
def use(device: str) -> None:
    """Use a device once, because the first use of a GPU takes seconds and should not be charged to
    a law.
    """
    torch.zeros(1, device=device)


def keep_freed_memory() -> None:
    """Make malloc keep up to 1 GiB of freed memory instead of returning it to the system.

    The oracle's matrices have several megabytes and live for one operation. Mapping fresh pages for
    each of them takes a third of its time.
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if hasattr(libc, "mallopt"):  # glibc only
        libc.mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the largest possible value; larger blocks are mapped as before
        libc.mallopt(M_TRIM_THRESHOLD, 1 << 30)
        libc.mallopt(M_TOP_PAD, 64 << 20)


def keep_triton_in_one_folder() -> None:
    """Fix the folder of Triton's cache: its own default, or our cache if the home is read-only.

    TorchInductor would set another folder in a process where it compiles (torch_flex). Every kernel
    of other implementations would then be compiled again.
    """
    if "TRITON_CACHE_DIR" in os.environ:
        return
    with contextlib.suppress(EmulatorError):  # our cache is not writable either, which the first kernel reports
        home = Path(os.environ.get("TRITON_HOME") or os.path.expanduser("~"))
        folder = home / ".triton"
        if "TRITON_HOME" not in os.environ and not os.access(folder if folder.exists() else home, os.W_OK):
            folder = cache_folder() / ".triton"
        os.environ["TRITON_CACHE_DIR"] = str(folder / "cache")


def compile_each_triton_kernel_once() -> None:
    """Make workers wait for each other, so that no two compile the same kernel at once.

    Triton's cache alone does not prevent that. This replaces triton.compiler.compile, which Triton
    looks up at the first call of each kernel.
    """
    compiler = sys.modules.get("triton.compiler")
    if compiler is None or hasattr(compiler.compile, "__wrapped__"):
        return
    compile_ = compiler.compile

    @functools.wraps(compile_)
    def compile_alone(src, *args, **kwargs):
        try:
            name = hashlib.sha256(f"{src.hash()} {kwargs.get('options')}".encode()).hexdigest()[:2]
        except (AttributeError, TypeError):  # a source object of another Triton version
            return compile_(src, *args, **kwargs)
        lock = FileLock(cache_folder() / f"triton-{name}.lock")
        with counted():  # counts the wait for another worker; Triton counts the rest (properties/machine/clock.py)
            lock.acquire()
        try:
            return compile_(src, *args, **kwargs)
        finally:
            lock.release()

    compiler.compile = compile_alone
