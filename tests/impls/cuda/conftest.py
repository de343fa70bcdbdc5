"""Nearly all tests here call the CUDA kernels on CPU tensors, so they are skipped without g++."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def needs_gxx(gxx):
    pass
