"""Calls of CUDA's driver API, through the package cuda-bindings."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from flash_attest.packages import install


def driver():
    """Return the module of the driver's functions. Raises OSError if it is not installed."""
    try:
        from cuda.bindings import driver  # only on a machine with a GPU: loading it takes 0.1 s
    except ImportError:
        raise OSError(f"the package cuda-bindings is not installed: {install('cuda')}") from None
    return driver


def call(function: Callable, *arguments: object):
    """Return the result of a driver call.

    Raises MemoryError if memory is short, or OSError with the name of any other error.
    """
    error, *result = function(*arguments)
    if error == type(error).CUDA_ERROR_OUT_OF_MEMORY:
        raise MemoryError(f"{function.__name__} gives {error.name}")
    if error != type(error).CUDA_SUCCESS:
        raise OSError(f"{function.__name__} gives {error.name}")
    return result[0] if result else None


def yield_while_waiting() -> None:
    """Make this process yield its core to others, such as compilers, while it waits for a GPU.

    By default the process polls and keeps the core. Sleeping would also free the core, but laws in
    which nothing compiles took a tenth longer with it (docs/measured/index.md).

    Call this once torch has used the GPU. If the driver is initialised earlier, in a fork of a
    process that asked NVML how many GPUs there are, torch's first use ends in a segmentation fault
    (CUDA 13.0). If the setting is not possible, it is left unchanged.
    """
    with suppress(OSError, MemoryError, RuntimeError):  # RuntimeError: the driver itself is not installed
        api = driver()
        for n in range(call(api.cuDeviceGetCount)):
            call(api.cuDevicePrimaryCtxSetFlags, call(api.cuDeviceGet, n), api.CUctx_flags.CU_CTX_SCHED_YIELD)
