"""Numba on a CPU: kernels compile for the emulated GPU, and their PTX runs in emulator.ptx.

    from flash_attest.emulator.numba import activate
    activate()    # from now on any @cuda.jit kernel takes CPU tensors and NumPy arrays
    kernel[blocks, threads](x, y, n)

patches.py      all names of numba-cuda that are replaced
device.py       the device that Numba sees: its memory, streams, events; ../devices.py: its numbers
kernel.py       a compiled kernel: its PTX is loaded and run, instead of a cubin
fingerprint.py  the key of its PTX on disk; taught.py: what other packages added to Numba
text.py         the PTX with the functions that it links, and the author's names of shared arrays
function.py     the kernel in the engine, and the limits of a launch
arguments.py    from the arguments of a launch to the arguments of the PTX
../importing.py activates it when Numba's CUDA part is imported
../guards.py    what packages ask torch about its GPU: as_cuda()

docs/use/tracing-numba.md is for authors of kernels. Importing this imports neither Numba nor torch.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import warnings

from flash_attest.emulator import devices

INSTALL = "pip install 'flash-attest[numba]'"


def simulated() -> bool:
    """Return whether NUMBA_ENABLE_CUDASIM is on, so that Numba's own simulator runs kernels
    uncompiled.
    """
    return os.environ.get("NUMBA_ENABLE_CUDASIM", "0").strip() not in ("", "0")


def lacking(emulated: bool = True) -> str:
    """Return why Numba's kernels cannot run in this process, and what to do about it; "" if they
    can.

    emulated: whether they run in the emulator; otherwise they run on a GPU.
    """
    if simulated():
        return "NUMBA_ENABLE_CUDASIM is set: unset it; without a GPU the kernels run compiled, in the emulator"
    for module, name in (("numba", "Numba"), ("numba_cuda", "numba-cuda"), ("cuda.pathfinder", "cuda-pathfinder")):
        try:
            spec = importlib.util.find_spec(module)
        except ModuleNotFoundError:  # raised for the parent package
            spec = None
        if spec is None:
            return f"{name} is not installed: {INSTALL}"
    import numba_cuda
    from cuda import pathfinder

    if numba_cuda.__version__.split(".")[:2] != ["0", "30"]:
        need = "the emulator replaces" if emulated else "launches use"
        return f"numba-cuda {numba_cuda.__version__}: should be 0.30, whose private names {need}: {INSTALL}"
    for library in ("nvvm", "nvrtc"):
        try:
            pathfinder.load_nvidia_dynamic_lib(library)
        except (pathfinder.DynamicLibNotFoundError, RuntimeError):
            return f"NVIDIA's {library}, which compiles without a GPU too, is not installed: {INSTALL}"
    return ""


def activate(target: int | None = None) -> bool:
    """Make the emulator Numba's device in this process.

    target: the GPU, 80 or 90; None is what FLASH_ATTEST_EMULATED names, else 80. Returns False with
    NUMBA_ENABLE_CUDASIM, which takes precedence. Raises EmulatorError for another target, and if
    something is lacking.
    """
    if target is not None:
        devices.choose(target)
    if simulated():
        return False
    if missing := lacking():
        from flash_attest.emulator.errors import EmulatorError

        raise EmulatorError(missing)
    # This comes before the next lines, because the import may activate the emulator (importing.py).
    importlib.import_module("numba.cuda")
    from flash_attest.emulator.numba import patches

    patches.activate()
    return True


def is_active() -> bool:
    """Return whether the emulator is Numba's device in this process."""
    loaded = sys.modules.get("flash_attest.emulator.numba.patches")
    return loaded is not None and loaded.is_active()


def activate_when_imported() -> None:
    """Activate when this process imports numba.cuda, or now if it is already imported."""
    from flash_attest.emulator.importing import (
        when_imported,  # imported here, so that this package exports only its own functions
    )

    when_imported("numba.cuda", _activate_if_possible)


def as_cuda() -> contextlib.AbstractContextManager[None]:
    """Let host code in this block use torch's GPU: x.is_cuda, torch.cuda.*, device="cuda",
    as_cuda_array(x).

    Inside, torch answers as if the emulator were its GPU; tensors stay on the CPU. Use it around
    the calls of a package, not for a whole program. On a machine with a GPU it does nothing, so one
    adapter serves both.
    """
    # This is imported here because it takes seconds, and before guards because it may install them.
    importlib.import_module("torch")
    from flash_attest.emulator import guards

    if not guards.gpu_is_there():
        activate()
    return guards.as_cuda() if is_active() else contextlib.nullcontext()


def _activate_if_possible() -> None:
    """Activate, or warn if that fails: another package's import must not fail, because it may never
    launch a kernel.
    """
    if not (missing := lacking()):
        activate()
    elif not simulated():
        warnings.warn(f"kernels in Numba do not run on the CPU: {missing}", RuntimeWarning, stacklevel=2)
