"""Where the kernels run: on a GPU; where there is none, compiled for sm_80 as well, in the emulator (emulator/numba)."""

import torch

import emulator.numba

EMULATED = not torch.cuda.is_available()


def lacking() -> str:
    """Why the kernels cannot run in this process; "" if they can."""
    return emulator.numba.lacking(EMULATED)


if EMULATED and not lacking():
    emulator.numba.activate()
