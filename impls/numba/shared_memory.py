"""Gives kernels more dynamic shared memory than a launch through Numba can request."""

from __future__ import annotations

from typing import Any

from numba.cuda.cudadrv.driver import binding, driver


def allow_shared_memory(function: Any, bytes_: int) -> None:
    """Allow a loaded kernel more than 48 KiB of dynamic shared memory."""
    limit = binding.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    driver.cuKernelSetAttribute(limit, bytes_, function.handle, function.device.id)
