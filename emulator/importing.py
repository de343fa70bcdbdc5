"""Activates an emulator when its compiler is imported, because packages may ask for the device
during their import.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from typing import Any


def when_imported(name: str, activate: Callable[[], Any]) -> None:
    """Call activate() once, after this process has imported a module, or now if it is already
    imported.
    """
    if name in sys.modules:
        activate()
    elif not any(isinstance(finder, _Finder) and finder.name == name for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(name, activate))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the module with the other finders, and makes its loader call something after the
    import.
    """

    def __init__(self, name: str, activate: Callable[[], Any]) -> None:
        self.name, self.activate = name, activate
        self.searching = False

    def find_spec(self, name, path=None, target=None):
        if name != self.name or self.searching:
            return None
        self.searching = True  # so that the search below skips this finder
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.searching = False
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_activate(module) -> None:
            execute(module)
            self.activate()

        spec.loader.exec_module = execute_and_activate
        return spec
