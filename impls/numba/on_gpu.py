"""On a GPU: compiled kernels are kept on disk, and a launch takes tens of microseconds.

Numba's own launch asks for the type of every argument and converts each into an object of its own, half a millisecond for our
kernels, which is as long as they run. So the first launch of a kernel with arguments of some types compiles it through Numba;
all launches go through cuda.core, which Numba launches with, too.

Numba passes an array as meminfo, parent, elements, bytes of an element, address, then its shape and its strides, each 8
bytes; a tuple as its elements; integers as int64. tests/impls/numba/test_on_gpu.py compares that with what Numba does.
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

# What turns a kernel into machine code: another version gets a folder of its own.
COMPILERS = ("numba", "numba-cuda", "llvmlite", "cuda-core", "cuda-bindings", "nvidia-nvvm", "nvidia-nvjitlink")
_compiled: dict[tuple, Any] = {}  # (kernel, types of the arguments, device) -> what cuda.core launches
_compiling = threading.Lock()  # autograd has a thread for each device
_threads = threading.local()  # ready: there, if the thread has a CUDA context


def launch(kernel: Any, blocks: int, bytes_: int, arguments: list[Any]) -> None:
    """Launch on torch's current stream of the tensors' device. arguments: flat tensors, numbers, tuples of integers."""
    device = next(x.device for x in arguments if isinstance(x, torch.Tensor))
    with torch.cuda.device(device):
        if not hasattr(_threads, "ready"):
            cuda.current_context()  # PyTorch makes one current only when it calls CUDA itself
            _threads.ready = True
        stream = torch.cuda.current_stream(device).cuda_stream
        key = (kernel, bytes_, device.index, *map(_type_of, arguments))
        if key not in _compiled:
            _compiled[key] = _compile(kernel, arguments, bytes_)
        passed = core.LaunchConfig(grid=blocks, block=THREADS, shmem_size=bytes_)
        core.launch(_stream(stream, device.index), passed, _compiled[key], *parameters(arguments))


def parameters(arguments: list[Any]) -> list[Any]:
    """The kernel's parameters, as Numba passes them."""
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
def _integers(of: tuple) -> tuple[int, ...]:
    """A tuple of integers and tuples -> its integers."""
    return tuple(n for x in of for n in (_integers(x) if isinstance(x, tuple) else (x,)))


def _type_of(argument: Any) -> Any:
    return argument.dtype if isinstance(argument, torch.Tensor) else type(argument)


@functools.lru_cache(maxsize=64)
def _stream(handle: int, device: int) -> core.Stream:
    return core.Stream.from_handle(handle)


def _compile(kernel: Any, arguments: list[Any], bytes_: int) -> Any:
    """Compile it for these arguments, or fetch it from the disk, and allow it its shared memory on the current device."""
    of_numba = [cuda.as_cuda_array(x) if isinstance(x, torch.Tensor) else x for x in arguments]
    signature = tuple(map(kernel.typeof_pyval, of_numba))
    folder = _folder_of(kernel, signature)
    with _compiling, FileLock(f"{folder}.lock"):
        _keep_in(folder, kernel)
        function = kernel.compile(signature).library.get_cufunc()
    allow_shared_memory(function, bytes_)
    return function.kernel


def _keep_in(folder: Path, kernel: Any) -> None:
    """Numba looks for its results there, and writes them there. The folder of other people's kernels stays as it is."""
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder)
    try:
        kernel.enable_caching()
    finally:
        config.CACHE_DIR = before


def _folder_of(kernel: Any, signature: tuple) -> Path:
    """A folder for each kernel, its constants and its signature: two processes that write to one may mix up their kernels.

    Numba has one index for all kernels of a function, and numbers them without a lock.
    """
    return _folder() / key_of(kernel.py_func.__qualname__, repr(_constants(kernel)), repr(signature))


def _constants(kernel: Any) -> list[Any]:
    return [cell.cell_contents for cell in kernel.py_func.__closure__ or () if isinstance(cell.cell_contents, int)]


def _version(package: str) -> str:
    """With its name; where it is not installed, as with a CUDA toolkit of the system, the name alone."""
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return package


@functools.cache
def _folder() -> Path:
    """Where all kernels of these sources are kept: Numba looks at the file of a kernel only, not at those it imports."""
    sources = [file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py"))]
    folder = cache_folder() / f"numba-{key_of(*sources, *map(_version, COMPILERS))}"
    folder.mkdir(exist_ok=True)
    return folder
