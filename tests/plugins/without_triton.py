"""Simulates a machine without Triton: it is not found and cannot be imported. `pytest -p tests.plugins.without_triton`."""

import importlib.util
import sys

find_spec = importlib.util.find_spec


class NoTriton:
    """An import finder that precedes all others."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "triton":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, NoTriton)
importlib.util.find_spec = lambda name, package=None: None if name == "triton" else find_spec(name, package)
