"""Tests of an installation: they build the package, install it, and use it as people do.

Only `tox -e package` runs them. They need g++ and the network, and take minutes. The environment
that runs them needs neither torch nor the package.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.package.installation import Installation
from tests.package.repository import write

HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --package."""
    parser.addoption("--package", action="store_true", help="build the package, install it, and test the installation")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave these tests out unless --package is given.

    Tests that need Triton come last, because installing Triton affects the others.
    """
    here = {item for item in items if str(item.path).startswith(f"{HERE}/")}  # Path.parents is slow
    if config.getoption("--package", default=False):
        items.sort(key=lambda item: "with_triton" in getattr(item, "fixturenames", ()))
    elif here:
        items[:] = [item for item in items if item not in here]
        config.hook.pytest_deselected(items=list(here))


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """Make a folder outside of the checkout, and remove it with its environment, which is large."""
    with tempfile.TemporaryDirectory(prefix="attest-package-", ignore_cleanup_errors=True) as path:
        yield Path(path)


@pytest.fixture(scope="session")
def installed(folder: Path) -> Installation:
    """Install the wheel, without extras, in its own environment."""
    installation = Installation(folder)
    installation.build()
    installation.install()
    return installation


@pytest.fixture(scope="session")
def with_triton(installed: Installation) -> Installation:
    """Add the extra `triton` to the same environment."""
    installed.install("triton")
    return installed


@pytest.fixture(scope="session")
def hers(folder: Path) -> Path:
    """Write the repository of a kernel author."""
    return write(folder / "hers")
