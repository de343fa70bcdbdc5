"""The device of the kernels: a GPU, or the emulator, which has a GPU of emulator/devices.py."""

import importlib.util

import torch

from flash_attest.emulator.triton import activate, interpreted
from flash_attest.packages import install


def lacking() -> str:
    """Return why the kernels cannot run in this process; "" if they can."""
    if importlib.util.find_spec("triton") is None:
        return f"Triton is not installed: {install('triton')}"
    if interpreted():
        return "TRITON_INTERPRET is set: unset it; without a GPU the kernels run compiled, in the emulator"
    return ""


EMULATED = not torch.cuda.is_available()
if EMULATED and not lacking():
    activate()
