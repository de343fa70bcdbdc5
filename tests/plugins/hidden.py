"""Simulates a machine without a package: it is not found and cannot be imported."""

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
    """From now on this process does not find the package."""
    find_spec = importlib.util.find_spec
    sys.meta_path.insert(0, Hidden(hidden))
    importlib.util.find_spec = lambda name, package=None: None if name == hidden else find_spec(name, package)
