"""Nearly all tests here call the CUDA kernels on CPU tensors, so without g++ they are skipped."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def needs_gxx(gxx):
    pass
