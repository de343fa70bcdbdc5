"""Tests of kernels in Triton on the emulator.

They are skipped if a GPU is Triton's device, as a process has only one.
"""

import pytest
import torch

pytest.importorskip("triton")
if torch.cuda.is_available():
    pytest.skip("there is a GPU, which is Triton's device", allow_module_level=True)

from flash_attest.emulator.triton import activate

activate()
