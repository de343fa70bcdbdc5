"""Fixtures of tests about judging."""

import pytest

from flash_attest.properties.judging import sanitized
from tests.properties.judging.sanitizing import have_kernels
from tests.races.fake_sanitizer import fake


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Replace compute-sanitizer by a program. `forward` is the kernel of every implementation."""

    def install(**how) -> None:
        program = fake(tmp_path, **how)
        monkeypatch.setattr(sanitized.sanitizer, "find", lambda: program)
        have_kernels(monkeypatch, lambda trial: ["forward"])

    return install
