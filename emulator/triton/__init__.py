"""Triton on a CPU: kernels compile for the emulated GPU, and their PTX runs in emulator.ptx.

    from flash_attest.emulator.triton import activate
    activate()                        # from now on any @triton.jit kernel takes CPU tensors
    kernel[grid](x, y, n, BLOCK=128)

../devices.py  the GPUs that can be emulated
driver.py    the device that Triton sees: its properties, its clock, how autotuning chooses
backend.py   Triton's compiler for NVIDIA, without the step from PTX to machine code
launcher.py  from the arguments of a launch to the arguments of the PTX; lines.py: its source files
../importing.py  activates it when Triton is imported
../guards.py  what packages ask torch about its GPU: as_cuda()

docs/use/tracing-triton.md is for authors of kernels. Importing this imports neither Triton nor
torch.
"""

from __future__ import annotations

import contextlib
import importlib
import os

from flash_attest.emulator import devices


def interpreted() -> bool:
    """Return whether TRITON_INTERPRET is on, so that Triton's own interpreter runs kernels, which
    never reach a driver.
    """
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")


def activate(target: int | None = None) -> bool:
    """Make the emulator Triton's device in this process.

    target: the GPU, 80 or 90; None is what FLASH_ATTEST_EMULATED names, else 80. Returns False with
    TRITON_INTERPRET, which takes precedence. Raises EmulatorError for another target, and if this
    process emulates another one already.
    """
    if target is not None:
        devices.choose(target)
    if interpreted():
        return False
    # This is imported here because it takes a second, and before the driver because it may activate
    # the emulator (importing.py).
    importlib.import_module("triton")
    from flash_attest.emulator.triton import driver

    driver.activate()
    return True


def is_active() -> bool:
    """Return whether the emulator is Triton's device in this process."""
    import sys

    loaded = sys.modules.get("flash_attest.emulator.triton.driver")
    return loaded is not None and loaded.is_active()


def activate_when_imported() -> None:
    """Activate when this process imports Triton, or now if it is already imported."""
    from flash_attest.emulator.importing import (
        when_imported,  # imported here, so that this package exports only its own functions
    )

    when_imported("triton", activate)


def as_cuda() -> contextlib.AbstractContextManager[None]:
    """Let a package that needs torch's GPU be imported and called: is_cuda, torch.cuda.*,
    device="cuda".

    Inside, torch answers as if the emulator were its GPU; tensors stay in the CPU's memory. For a
    whole program, use flash_attest.emulate(). On a machine with a GPU it does nothing, so one
    adapter serves both.
    """
    # This is imported here because it takes seconds, and before guards because it may install them.
    importlib.import_module("torch")
    from flash_attest.emulator import guards

    if not guards.gpu_is_there():
        activate()
    return guards.as_cuda() if is_active() else contextlib.nullcontext()
