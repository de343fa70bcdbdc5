"""The names of numba-cuda that are replaced while the emulator is active: all of them, here and nowhere else.

tests/emulator/numba/test_canaries.py says of each what it is for; if another version has changed one, its test fails.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from numba.cuda import config, dispatcher
from numba.cuda.core import errors
from numba.cuda.cudadrv import devices, driver
from numba.cuda.debuginfo import CUDADIBuilder

from flash_attest.emulator.numba import arguments, device, kernel

_compile_cuda = dispatcher.compile_cuda
LINES_ONLY = "DebugDirectivesOnly"  # of what Numba compiles with lineinfo=True


@functools.wraps(_compile_cuda)
def compile_with_lines(*args: Any, debug: bool = False, lineinfo: bool = False, **options: Any) -> Any:
    """Python lines in the PTX of every kernel and device function: findings name them. (debug=True has them anyway.)"""
    with warnings.catch_warnings():
        if not lineinfo:  # nobody asked for them: a function without a file is no reason to warn
            warnings.simplefilter("ignore", errors.NumbaDebugInfoWarning)
        return _compile_cuda(*args, debug=debug, lineinfo=not debug, **options)


def with_debug_only(describe: Callable[..., Any]) -> Callable[..., Any]:
    """What describes variables to a debugger, for debug=True only.

    Beside lines that are not asked for NVVM does not need it, and it rejects some kernels for it, with "Symbol name with
    unsupported characters".
    """

    @functools.wraps(describe)
    def called(self: Any, *args: Any, **options: Any) -> Any:
        return None if self.emission_kind == LINES_ONLY else describe(self, *args, **options)

    return called


def no_stream(stream: Any) -> int:
    """Streams are ignored: everything has ended when a launch returns."""
    return 0


REPLACED = (
    (devices, "_runtime", device.Runtime()),
    (dispatcher, "_Kernel", kernel.Kernel),
    (dispatcher, "compile_cuda", compile_with_lines),
    *(
        (CUDADIBuilder, name, with_debug_only(getattr(CUDADIBuilder, name)))
        for name in ("mark_variable", "update_variable")
    ),
    (dispatcher.CUDACache, "load_overload", lambda self, *_: None),  # Numba's cache of kernels is for a GPU
    (dispatcher.CUDACache, "save_overload", lambda self, *_: None),
    (driver, "_to_core_stream", no_stream),
    *((driver.driver, name, function) for name, function in device.FUNCTIONS.items()),
    (config, "CUDA_LOW_OCCUPANCY_WARNINGS", 0),  # grids are small here
)


def activate() -> None:
    """Make the emulator the device of Numba in this process."""
    if not is_active():
        arguments.register()
        for owner, name, value in REPLACED:
            setattr(owner, name, value)


def is_active() -> bool:
    return isinstance(devices._runtime, device.Runtime)
