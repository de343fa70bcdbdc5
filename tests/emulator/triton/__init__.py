"""Tests of Triton kernels on the emulator.

They are skipped if Triton's device is a GPU, because a process has only one device.
"""

import pytest
import torch

pytest.importorskip("triton")
if torch.cuda.is_available():
    pytest.skip("there is a GPU, which is Triton's device", allow_module_level=True)

from flash_attest.emulator.triton import activate

activate()
