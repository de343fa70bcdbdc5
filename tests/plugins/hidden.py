"""Simulates a machine without a package, which is not found and cannot be imported."""

import importlib.util
import sys


class Hidden:
    """An import finder that precedes all others."""

    def __init__(self, name: str):
        self.name = name

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == self.name:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def hide(hidden: str) -> None:
    """Hide the package from this process from now on."""
    find_spec = importlib.util.find_spec
    sys.meta_path.insert(0, Hidden(hidden))
    importlib.util.find_spec = lambda name, package=None: None if name == hidden else find_spec(name, package)
