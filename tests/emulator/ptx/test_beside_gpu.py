"""The emulator and a GPU run the same PTX on the same memory. Kernels without approximations leave
the same bits.
"""

import re
import subprocess
import sys

import pytest
import torch

from tests.places import ROOT

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="compares with a GPU: no CUDA device here")


@pytest.mark.parametrize("name", ["triton_fa2", "triton_fa2_tf32"])
def test_a_gpu_agrees(name):
    """The comparison runs in a separate process, in which torch sees no GPU, so that the
    implementation chooses the emulator.
    """
    command = [sys.executable, "-m", "tests.emulator.ptx.beside_gpu", "--impl", name, "--cases", "12"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    exact = re.search(r"^delta_kernel +(\d+) +(\d+) ", done.stdout, re.MULTILINE)
    assert exact[1] == exact[2] and int(exact[1]) > 0, done.stdout
