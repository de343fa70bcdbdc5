"""Numba on a CPU: kernels compile for sm_80 as on a GPU, and their PTX runs in emulator.ptx.

    from flash_attest.emulator.numba import activate
    activate()                        # from now on any @cuda.jit kernel takes CPU tensors and NumPy arrays
    kernel[blocks, threads](x, y, n)

patches.py      the names of numba-cuda that are replaced, all of them
device.py       the device that Numba sees: its memory, streams, events; ../ampere.py: its numbers
kernel.py       a compiled kernel: where Numba would load a cubin and launch it, its PTX is loaded and run
fingerprint.py  by which key its PTX is kept on disk; taught.py: what Numba was taught by others
text.py         the PTX with the functions that it links, and with the author's names of shared arrays
function.py     the kernel in the engine, and the limits of a launch
arguments.py    from the arguments of a launch to those of the PTX
../importing.py switches it on as soon as somebody imports Numba's CUDA part
../guards.py    what packages ask torch about its GPU: as_cuda()

docs/use/tracing-numba.md says what authors of kernels have to know. Importing this imports neither Numba nor torch.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import warnings

INSTALL = "pip install 'flash-attest[numba]'"


def simulated() -> bool:
    """Whether NUMBA_ENABLE_CUDASIM is on: then Numba's own simulator runs kernels, which are not even compiled."""
    return os.environ.get("NUMBA_ENABLE_CUDASIM", "0").strip() not in ("", "0")


def lacking(emulated: bool = True) -> str:
    """Why Numba's kernels cannot run in this process, in the emulator or on a GPU, and what to do; "" if they can."""
    if simulated():
        return "NUMBA_ENABLE_CUDASIM is set: unset it; without a GPU the kernels run compiled, in the emulator"
    for module, name in (("numba", "Numba"), ("numba_cuda", "numba-cuda"), ("cuda.pathfinder", "cuda-pathfinder")):
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:  # of the package that it is in
            found = None
        if found is None:
            return f"{name} is not installed: {INSTALL}"
    import numba_cuda
    from cuda import pathfinder

    if numba_cuda.__version__.split(".")[:2] != ["0", "30"]:
        whose = "which the emulator replaces" if emulated else "which launches use"
        return (
            f"numba-cuda {numba_cuda.__version__}: should be 0.30, of which private names are known, {whose}: {INSTALL}"
        )
    for library in ("nvvm", "nvrtc"):
        try:
            pathfinder.load_nvidia_dynamic_lib(library)
        except (pathfinder.DynamicLibNotFoundError, RuntimeError):
            return f"NVIDIA's {library}, which compiles without a GPU too, is not installed: {INSTALL}"
    return ""


def activate() -> bool:
    """Make the emulator Numba's device in this process. -> False with NUMBA_ENABLE_CUDASIM, which comes first.

    Raises EmulatorError if something is lacking.
    """
    if simulated():
        return False
    if missing := lacking():
        from flash_attest.emulator.errors import EmulatorError

        raise EmulatorError(missing)
    importlib.import_module("numba.cuda")  # before what follows: it may activate (importing.py)
    from flash_attest.emulator.numba import patches

    patches.activate()
    return True


def is_active() -> bool:
    """Whether the emulator is Numba's device in this process."""
    loaded = sys.modules.get("flash_attest.emulator.numba.patches")
    return loaded is not None and loaded.is_active()


def activate_when_imported() -> None:
    """Activate as soon as this process imports numba.cuda, whoever does; at once if it has been imported."""
    from flash_attest.emulator.importing import (
        when_imported,  # here, so that this package names its functions and nothing else
    )

    when_imported("numba.cuda", _activate_if_possible)


def as_cuda() -> contextlib.AbstractContextManager[None]:
    """`with as_cuda():` calls host code that wants a GPU of torch: x.is_cuda, torch.cuda.*, device="cuda", as_cuda_array(x).

    Inside, torch answers as if its GPU were the emulator; tensors stay on the CPU. Not for a whole program: only around the
    calls into a package. Where there is a GPU it does nothing, so that an adapter serves both.
    """
    importlib.import_module("torch")  # here, as it takes seconds; before guards: it may put them in place
    from flash_attest.emulator import guards

    if not guards.gpu_is_there():
        activate()
    return guards.as_cuda() if is_active() else contextlib.nullcontext()


def _activate_if_possible() -> None:
    """Somebody else's import must not fail: they may not even launch a kernel."""
    if not (missing := lacking()):
        activate()
    elif not simulated():
        warnings.warn(f"kernels in Numba do not run on the CPU: {missing}", RuntimeWarning, stacklevel=2)
