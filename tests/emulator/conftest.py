"""Every test here compiles kernels for the CPU, and is skipped without g++."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def needs_gxx(gxx):
    pass
