"""Calls of CUDA's driver API, through the package cuda-bindings."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from flash_attest.packages import install


def driver():
    """The module of the driver's functions. Raises OSError, in words, where it is not installed."""
    try:
        from cuda.bindings import driver  # only where there is a GPU: loading it takes 0.1 s
    except ImportError:
        raise OSError(f"the package cuda-bindings is not installed: {install('cuda')}") from None
    return driver


def call(function: Callable, *arguments: object):
    """The result of a driver call. Raises MemoryError where memory is short, else OSError, with the name of the error."""
    error, *result = function(*arguments)
    if error == type(error).CUDA_ERROR_OUT_OF_MEMORY:
        raise MemoryError(f"{function.__name__} gives {error.name}")
    if error != type(error).CUDA_SUCCESS:
        raise OSError(f"{function.__name__} gives {error.name}")
    return result[0] if result else None


def yield_while_waiting() -> None:
    """Have this process give its core to others that have work, such as compilers, while it waits for a GPU.

    By default it asks over and over and keeps the core. Asleep it would leave the core to others as well, but laws in
    which nothing compiles then took a tenth longer (docs/measured/index.md).

    Call once torch has used the GPU: where the driver is initialised before, and by a fork of a process that asked NVML how
    many GPUs there are, torch's own first use ends in a segmentation fault (CUDA 13.0). Where this cannot be set, it is left
    as it is.
    """
    with suppress(OSError, MemoryError, RuntimeError):  # RuntimeError: the driver itself is not installed
        api = driver()
        for n in range(call(api.cuDeviceGetCount)):
            call(api.cuDevicePrimaryCtxSetFlags, call(api.cuDeviceGet, n), api.CUctx_flags.CU_CTX_SCHED_YIELD)
