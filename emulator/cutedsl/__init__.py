"""CuTe DSL on a CPU: its host code runs as it is, and the PTX of its kernels runs in emulator.ptx.

    from flash_attest import emulate
    emulate(target=90)                # before cutlass is imported
    compiled = cute.compile(function, from_dlpack(x), from_dlpack(y))
    compiled(from_dlpack(x), from_dlpack(y))      # CPU tensors

host/        C++: the library that compiled host code calls instead of NVIDIA's runtime
library.py   builds it, and connects it with Python: libraries, kernels, launches
calls.py     a call of a compiled function, whose tensors lie in the emulator's memory meanwhile
memory.py    hands tensors over as those of a GPU
patches.py   what is replaced in cutlass

Kernels compile for sm_90 only, because their compiler is used for Hopper and later. Importing this
imports neither cutlass nor torch.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import warnings

from flash_attest.emulator import devices

PACKAGE = "cutlass"
# Of nvidia-cutlass-dsl. Another version gives a warning: parts that patches.py replaces are
# private.
SUPPORTED = "4.8."
_prepared = False


def prepare() -> None:
    """Set the environment that cutlass reads when it is imported, and patch it then.

    Does nothing without cutlass, for a target before sm_90, and if a program has set CUTE_DSL_LIBS.
    """
    global _prepared
    if _prepared or devices.target() < 90:
        return
    if PACKAGE not in sys.modules and importlib.util.find_spec(PACKAGE) is None:
        return
    # Imported here, because it imports torch.
    from flash_attest.emulator.cutedsl import library
    from flash_attest.emulator.importing import when_imported

    ours = str(library.path())
    if os.environ.get("CUTE_DSL_LIBS", ours) != ours:
        return
    _prepared = True
    os.environ |= {
        "CUTE_DSL_LIBS": ours,
        "CUTE_DSL_ARCH": f"{devices.emulated().arch}a",
        "CUTE_DSL_KEEP": "ptx",
        "CUTE_DSL_LINEINFO": "1",
        "CUTE_DSL_DUMP_DIR": tempfile.gettempdir(),  # patches.py replaces it
    }
    when_imported(f"{PACKAGE}.cute", _activate)


def is_prepared() -> bool:
    """Return whether this process's CuTe DSL runs in the emulator, or will once it is imported."""
    return _prepared


def _activate() -> None:
    from flash_attest.emulator.cutedsl import patches

    version = sys.modules[PACKAGE].__version__
    if not version.startswith(SUPPORTED):
        warnings.warn(
            f"nvidia-cutlass-dsl {version}: the emulator was written for {SUPPORTED}x", RuntimeWarning, stacklevel=2
        )
    patches.activate()
