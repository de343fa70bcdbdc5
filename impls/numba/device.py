"""The device of the kernels: a GPU, or the emulator, for which they are compiled for sm_80."""

import torch

from flash_attest.emulator import numba as emulated_numba

EMULATED = not torch.cuda.is_available()


def lacking() -> str:
    """Return why the kernels cannot run in this process; "" if they can."""
    return emulated_numba.lacking(EMULATED)


if EMULATED and not lacking():
    emulated_numba.activate()
