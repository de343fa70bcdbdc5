"""Skips every test here if there is no g++, because all of them compile kernels for the CPU; the
fixture traced_first.
"""

from types import SimpleNamespace

import pytest

from flash_attest.emulator.cuda import loading

collect_ignore = ["gpu_style"]  # test files for a GPU: test_emulate_command.py runs them as a user does


@pytest.fixture(scope="session", autouse=True)
def needs_gxx(gxx):
    pass


@pytest.fixture
def traced_first(monkeypatch):
    """Makes `load` compile the traced build, for tests that seldom run the plain one, which takes a
    third of a second. It is still compiled when it is used.
    """
    monkeypatch.setattr(loading, "watch", SimpleNamespace(needs_traced_build=lambda: True))
