"""Compiles the machine's C++ (machine/) once, by content and processor, and declares its functions
for ctypes.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from flash_attest.emulator.runtime.library import HEADERS, load_cpp, runtime

FOLDER = Path(__file__).resolve().parent / "machine"
# Operations are loops over 32 lanes that g++ vectorises, here as readily as with -O3. The rest of
# -O3 takes a sixth more time to compile, and kernels do not run faster. g++ vectorises sqrt and
# choices between two results only if it may ignore errno and the processor's exception flags, which
# nothing here reads.
# Functions start at a cache line, because otherwise a line added to one function shifts the loops
# of all later ones, which has made the same code up to 11 % slower.
FLAGS = (
    "-O2", "-ftree-vectorize", "-fvect-cost-model=dynamic", "-falign-functions=64", "-march=native", "-fno-math-errno",
    "-fno-trapping-math",
)  # fmt: skip
SOURCES = FOLDER, [*HEADERS, *sorted(FOLDER.glob("*.h"))], FLAGS


@functools.cache
def machine() -> ctypes.CDLL:
    """Return the machine's library, on top of the runtime's. Raises NoCompiler, CompileError."""
    runtime()
    library = load_cpp(*SOURCES)
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    declared = {
        "handlers": (size, [ctypes.POINTER(ctypes.c_char_p), size]),
        "program": (pointer, [pointer, size, pointer, size, pointer, size, size, size, size]),
        "free": (None, [pointer]),
        "replicated": (None, [pointer]),
        "lines": (None, [pointer, pointer, pointer, size]),
        "module": (pointer, [ctypes.c_char_p]),
        "global": (None, [pointer, pointer, size, ctypes.c_int]),
        "shared_span": (None, [pointer, size, size]),
        "launch": (
            ctypes.c_int,
            [pointer, pointer, ctypes.c_char_p, *[ctypes.c_uint * 3] * 3, size, size, pointer, size, ctypes.c_char_p, size],
        ),
    }  # fmt: skip
    for name, (result, arguments) in declared.items():
        function = getattr(library, f"emulator_ptx_{name}")
        function.restype, function.argtypes = result, arguments
    return library


@functools.cache
def handlers() -> dict[str, int]:
    """Return the number of each handler, by its name."""
    most = machine().emulator_ptx_handlers(None, 0)
    names = (ctypes.c_char_p * most)()
    machine().emulator_ptx_handlers(names, most)
    return {name.decode(): number for number, name in enumerate(names)}
