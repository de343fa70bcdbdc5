"""Skips every test here if there is no g++, because all of them compile kernels for the CPU."""

import pytest

collect_ignore = ["gpu_style"]  # test files for a GPU: test_emulate_command.py runs them as a user does


@pytest.fixture(scope="session", autouse=True)
def needs_gxx(gxx):
    pass
