"""The version of an implementation. Runs of one version say nothing about another."""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from flash_attest.impls.contract.entry import Entry
from flash_attest.runner.plugin import sources

COMPILERS = ("torch", "triton", "numba", "numba-cuda")


def version_of(entry: Entry, device_name: str) -> str:
    """Return a digest of the implementation's sources, its compilers, the packages it imports, and
    the device.
    """
    if entry.option:
        parts, packages = [sources.of_plugin(entry.file)], _packages_of(Path(entry.file))
    else:  # all implementations share the modules of impls/ itself
        parts, packages = [sources.of_ours(entry.file), *map(sources.of_ours, _shared())], []
    parts += [f"{name} {_version(name)}" for name in sorted({*COMPILERS, *packages})]
    return hashlib.sha256("\n".join([*parts, device_name]).encode()).hexdigest()[:16]


def _shared() -> list[str]:
    return sorted(map(str, (sources.ROOT / "impls").glob("*.py")))


def _packages_of(file: Path) -> set[str]:
    """Return the installed packages that a file imports."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError):  # the import of the file will report it
        return set()
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {
        node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module and not node.level
    }
    return {package for name in names for package in _packages().get(name.partition(".")[0], ())}


@functools.cache
def _packages() -> Mapping[str, Iterable[str]]:
    return metadata.packages_distributions()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "is not installed"
