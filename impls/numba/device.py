"""Where the kernels run: on a GPU; where there is none, compiled for sm_80 as well, in the emulator (emulator/numba)."""

import torch

from flash_attest.emulator import numba as emulated_numba

EMULATED = not torch.cuda.is_available()


def lacking() -> str:
    """Why the kernels cannot run in this process; "" if they can."""
    return emulated_numba.lacking(EMULATED)


if EMULATED and not lacking():
    emulated_numba.activate()
