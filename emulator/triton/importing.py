"""Activates the emulator when Triton is imported: packages may ask for Triton's device while they are being imported."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys

import emulator.triton


def activate_when_imported() -> None:
    """Once for each process; at once if Triton has been imported."""
    if "triton" in sys.modules:
        emulator.triton.activate()
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the package `triton` where it would be found anyway, and activates the emulator after it was imported."""

    def __init__(self) -> None:
        self.searching = False

    def find_spec(self, name, path=None, target=None):
        if name != "triton" or self.searching:
            return None
        self.searching = True  # the search goes on with the other finders
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.searching = False
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_activate(module) -> None:
            execute(module)
            emulator.triton.activate()

        spec.loader.exec_module = execute_and_activate
        return spec
