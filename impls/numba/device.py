"""The device of the kernels: a GPU, or the emulator, which has a GPU of emulator/devices.py."""

import torch

from flash_attest.emulator import numba as emulated_numba

EMULATED = not torch.cuda.is_available()


def lacking() -> str:
    """Return why the kernels cannot run in this process; "" if they can."""
    return emulated_numba.lacking(EMULATED)


if EMULATED and not lacking():
    emulated_numba.activate()
