"""All names of numba-cuda that are replaced while the emulator is active.

tests/emulator/numba/test_canaries.py says what each name is for, and fails if another version of
numba-cuda changes it.
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
LINES_ONLY = "DebugDirectivesOnly"  # the level for functions that Numba compiles with lineinfo=True


@functools.wraps(_compile_cuda)
def compile_with_lines(*args: Any, debug: bool = False, lineinfo: bool = False, **options: Any) -> Any:
    """Compile with Python's line numbers in the PTX of every kernel and device function, because
    findings name them.

    With debug=True the lines are always there.
    """
    with warnings.catch_warnings():
        # The author did not ask for lines, so a function without a file needs no warning.
        if not lineinfo:
            warnings.simplefilter("ignore", errors.NumbaDebugInfoWarning)
        return _compile_cuda(*args, debug=debug, lineinfo=not debug, **options)


def with_debug_only(describe: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that describes variables to a debugger, so that it runs only with debug=True.

    NVVM does not need the description for line numbers, and rejects some kernels because of it:
    "Symbol name with unsupported characters".
    """

    @functools.wraps(describe)
    def called(self: Any, *args: Any, **options: Any) -> Any:
        return None if self.emission_kind == LINES_ONLY else describe(self, *args, **options)

    return called


def no_stream(stream: Any) -> int:
    """Ignore the stream, because all work is done when a launch returns."""
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
    """Make the emulator Numba's device in this process."""
    if not is_active():
        arguments.register()
        for owner, name, value in REPLACED:
            setattr(owner, name, value)


def is_active() -> bool:
    return isinstance(devices._runtime, device.Runtime)
