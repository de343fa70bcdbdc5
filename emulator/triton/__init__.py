"""Triton on a CPU: kernels compile for sm_80 as on a GPU, and their PTX runs in emulator.ptx.

    from flash_attest.emulator.triton import activate
    activate()                        # from now on any @triton.jit kernel takes CPU tensors
    kernel[grid](x, y, n, BLOCK=128)

driver.py    the device that Triton sees: its properties, its clock, how autotuning chooses
backend.py   Triton's compiler for NVIDIA, without the step from PTX to machine code
launcher.py  from the arguments of a launch to those of the PTX; lines.py: of which files its lines are
../importing.py switches it on as soon as somebody imports Triton
../guards.py  what packages ask torch about its GPU: as_cuda()

docs/use/tracing-triton.md says what authors of kernels have to know. Importing this imports neither Triton nor torch.
"""

from __future__ import annotations

import contextlib
import importlib
import os


def interpreted() -> bool:
    """Whether TRITON_INTERPRET is on: then Triton's own interpreter runs kernels, which never reach a driver."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")


def activate() -> bool:
    """Make the emulator Triton's device in this process. -> False with TRITON_INTERPRET, which comes first."""
    if interpreted():
        return False
    importlib.import_module("triton")  # here, as it takes a second; before the driver: it may activate (importing.py)
    from flash_attest.emulator.triton import driver

    driver.activate()
    return True


def is_active() -> bool:
    """Whether the emulator is Triton's device in this process."""
    import sys

    loaded = sys.modules.get("flash_attest.emulator.triton.driver")
    return loaded is not None and loaded.is_active()


def activate_when_imported() -> None:
    """Activate as soon as this process imports Triton, whoever does; at once if it has been imported."""
    from flash_attest.emulator.importing import (
        when_imported,  # here, so that this package names its functions and nothing else
    )

    when_imported("triton", activate)


def as_cuda() -> contextlib.AbstractContextManager[None]:
    """`with as_cuda():` imports and calls a package that asks torch for a GPU: is_cuda, torch.cuda.*, device="cuda".

    Inside, torch answers as if its GPU were the emulator; the memory of tensors stays the CPU's. For a whole program:
    flash_attest.emulate(). Where there is a GPU it does nothing, so that an adapter serves both.
    """
    importlib.import_module("torch")  # here, as it takes seconds; before guards: it may put them in place
    from flash_attest.emulator import guards

    if not guards.gpu_is_there():
        activate()
    return guards.as_cuda() if is_active() else contextlib.nullcontext()
