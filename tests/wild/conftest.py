"""Tests of packages that people install. Those that install packages run only with --wild."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the proofs out unless --wild names the folder of `flash-attest wild`."""
    proofs = [item for item in items if item.path == Path(__file__).parent / "test_proofs.py"]
    if proofs and not config.getoption("--wild"):
        items[:] = [item for item in items if item not in proofs]
        config.hook.pytest_deselected(items=proofs)
