"""Every test here compiles kernels for the CPU, and is skipped without g++."""

import pytest

collect_ignore = ["gpu_style"]  # test files for a GPU: test_emulate_command.py runs them as a user does


@pytest.fixture(scope="session", autouse=True)
def needs_gxx(gxx):
    pass
