"""Launches on a GPU in tens of microseconds, and keeps compiled kernels on disk.

Numba's own launch looks up the type of each argument and converts it to an object. For our kernels
this takes half a millisecond, which is as long as the kernels themselves take. So the first launch
of a kernel with new argument types compiles it through Numba, and all launches go through
cuda.core, which Numba itself uses.

Numba passes an array as meminfo, parent, number of elements, bytes of an element, address, shape
and strides, each of 8 bytes. It passes a tuple as its elements, and integers as int64.
tests/impls/numba/test_on_gpu.py compares this with Numba's own launch.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cuda import core
from filelock import FileLock
from numba import cuda
from numba.cuda.core import config

from flash_attest.emulator.build_cache import cache_folder, key_of

from .shared_memory import allow_shared_memory
from .tiles import THREADS

# The packages that turn a kernel into machine code. Each combination of versions has its own
# folder.
COMPILERS = ("numba", "numba-cuda", "llvmlite", "cuda-core", "cuda-bindings", "nvidia-nvvm", "nvidia-nvjitlink")
_compiled: dict[tuple, Any] = {}  # (kernel, types of the arguments, device) -> the kernel for cuda.core
_compiling = threading.Lock()  # autograd has a thread for each device
_threads = threading.local()  # has the attribute `ready` if the thread has a CUDA context


def launch(kernel: Any, blocks: int, bytes_: int, arguments: list[Any]) -> None:
    """Launch on torch's current stream of the tensors' device.

    arguments: flat tensors, numbers, tuples of integers.
    """
    device = next(x.device for x in arguments if isinstance(x, torch.Tensor))
    with torch.cuda.device(device):
        if not hasattr(_threads, "ready"):
            cuda.current_context()  # PyTorch makes a context current only when it calls CUDA itself
            _threads.ready = True
        stream = torch.cuda.current_stream(device).cuda_stream
        key = (kernel, bytes_, device.index, *map(_type_of, arguments))
        if key not in _compiled:
            _compiled[key] = _compile(kernel, arguments, bytes_)
        launch_config = core.LaunchConfig(grid=blocks, block=THREADS, shmem_size=bytes_)
        core.launch(_stream(stream, device.index), launch_config, _compiled[key], *parameters(arguments))


def parameters(arguments: list[Any]) -> list[Any]:
    """Return the kernel's parameters as Numba passes them."""
    return [parameter for argument in arguments for parameter in _flattened(argument)]


def _flattened(argument: Any) -> Iterator[Any]:
    if isinstance(argument, torch.Tensor):
        n, size = argument.numel(), argument.element_size()
        yield from (0, 0, n, size, argument.data_ptr() if n else 0, n, size)
    elif isinstance(argument, tuple):
        yield from _integers(argument)
    else:
        yield ctypes.c_float(argument) if isinstance(argument, np.float32) else argument


@functools.lru_cache(maxsize=1024)
def _integers(nested: tuple) -> tuple[int, ...]:
    """Return the integers of a tuple of integers and tuples."""
    return tuple(n for x in nested for n in (_integers(x) if isinstance(x, tuple) else (x,)))


def _type_of(argument: Any) -> Any:
    return argument.dtype if isinstance(argument, torch.Tensor) else type(argument)


@functools.lru_cache(maxsize=64)
def _stream(handle: int, device: int) -> core.Stream:
    return core.Stream.from_handle(handle)


def _compile(kernel: Any, arguments: list[Any], bytes_: int) -> Any:
    """Compile a kernel for these arguments, or load it from disk, and allow its shared memory."""
    of_numba = [cuda.as_cuda_array(x) if isinstance(x, torch.Tensor) else x for x in arguments]
    signature = tuple(map(kernel.typeof_pyval, of_numba))
    folder = _folder_of(kernel, signature)
    with _compiling, FileLock(f"{folder}.lock"):
        _keep_in(folder, kernel)
        function = kernel.compile(signature).library.get_cufunc()
    allow_shared_memory(function, bytes_)
    return function.kernel


def _keep_in(folder: Path, kernel: Any) -> None:
    """Make Numba cache this kernel in the folder, but no other kernel."""
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
    try:
        kernel.enable_caching()
    finally:
        config.CACHE_DIR = before


def _folder_of(kernel: Any, signature: tuple) -> Path:
    """Return the cache folder for a kernel with its constants and signature.

    Numba has one index for all kernels of a function, and numbers them without a lock. So two
    processes that write to one folder may mix up their kernels.
    """
    return _folder() / key_of(kernel.py_func.__qualname__, repr(_constants(kernel)), repr(signature))


def _constants(kernel: Any) -> list[Any]:
    return [cell.cell_contents for cell in kernel.py_func.__closure__ or () if isinstance(cell.cell_contents, int)]


def _version(package: str) -> str:
    """Return the name and version of a package; only the name if pip has not installed it."""
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return package


@functools.cache
def _folder() -> Path:
    """Return the cache folder for all kernels of these sources.

    Numba checks only the file of a kernel for changes, not the files that it imports.
    """
    sources = [file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py"))]
    folder = cache_folder() / f"numba-{key_of(*sources, *map(_version, COMPILERS))}"
    folder.mkdir(exist_ok=True)
    return folder
