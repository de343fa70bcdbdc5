"""Tests of Numba kernels on the emulator.

They are skipped if Numba's device is a GPU, because a process has only one device.
"""

import pytest
import torch

from flash_attest.emulator.numba import activate, lacking

if torch.cuda.is_available():
    pytest.skip("there is a GPU, which is Numba's device", allow_module_level=True)
if missing := lacking():
    pytest.skip(missing, allow_module_level=True)
activate()
