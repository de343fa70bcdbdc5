"""A process's additions to Numba with numba.extending: overloads and intrinsics.

A compiled kernel refers to them by name, so they are a part of its key (fingerprint.py).
"""

from __future__ import annotations

import sys
import sysconfig
import types as python_types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# A change of these packages, or of Python, changes a version in the key.
PACKAGES = ("numba", "numba_cuda", "numpy", "llvmlite")
STANDARD_LIBRARY = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
REGISTRIES = {
    **{f"numba.{part}": "builtin_registry" for part in ("core.imputils", "core.typing.templates")},
    **{f"numba.cuda.{part}": "builtin_registry" for part in ("core.imputils", "typing.templates")},
    **{f"numba.cuda.{part}": "registry" for part in ("cudadecl", "cudaimpl")},
}
LISTS = ("functions", "attributes", "globals", "getattrs", "setattrs", "casts", "constants")


def is_of_package(module: Any) -> bool:
    """Return whether a module belongs to Python or to a package whose version is in the key."""
    top = module.partition(".")[0] if isinstance(module, str) else ""
    return top in PACKAGES or (top in sys.stdlib_module_names and top in sys.modules and _is_standard(sys.modules[top]))


def _is_standard(module: python_types.ModuleType) -> bool:
    """Return whether the module is Python's own, and not an author's module of the same name:
    statistics.py, token.py.
    """
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ in sys.builtin_module_names
    return "site-packages" not in file and any(Path(file).is_relative_to(folder) for folder in STANDARD_LIBRARY)


class Taught:
    """The additions of a process. Numba's lists only grow, so each entry is examined once."""

    def __init__(self) -> None:
        # Templates for names that any kernel may use: math.exp, operator.add.
        self.everywhere: list[Any] = []
        # Id of an author's function -> templates, for kernels that name it.
        self.of: dict[int, list[Any]] = {}
        self.otherwise = ""  # a module that extends Numba by other means than overload and intrinsic
        self._looked_at: dict[tuple[str, str], int] = {}

    def update(self) -> None:
        for module, registry in REGISTRIES.items():
            for name in LISTS if module in sys.modules else ():
                entries = getattr(getattr(sys.modules[module], registry), name, ())
                for entry in entries[self._looked_at.get((module, name), 0) :]:
                    self._add(entry, name)
                self._looked_at[module, name] = len(entries)

    def _add(self, entry: Any, name: str) -> None:
        if isinstance(entry, tuple):  # (key, its type), or (implementation, key, ...)
            if entry[0] is entry[1]:
                return  # made by an intrinsic when it was compiled
            entry = entry[1] if name == "globals" else entry[0]
        for each in getattr(entry, "templates", (entry,)):  # for a types.Function
            author = next((home for home in _homes(each) if not is_of_package(home)), None)
            if author is None:
                continue
            if maker(each) is None:
                self.otherwise = author
            elif isinstance(each.key, python_types.FunctionType) or hasattr(each.key, "_defn"):
                self._keep(self.of.setdefault(id(each.key), []), each)
            else:
                self._keep(self.everywhere, each)

    def _keep(self, templates: list[Any], template: Any) -> None:
        """Keep a template. An overload has two templates: one for Numba itself, one for
        numba-cuda.
        """
        if all(maker(template) is not maker(known) for known in templates):
            templates.append(template)


def maker(template: Any) -> Any:
    """Return the author's function that makes the code of an overload or intrinsic; None for other
    templates.
    """
    return getattr(template, "_overload_func", None) or getattr(template, "_definition_func", None)


def _homes(each: Any) -> Iterator[str]:
    """Yield the modules that an entry comes from. There may be several, because Numba wraps some
    implementations in its own functions.
    """
    function = maker(each) or each
    cells = getattr(function, "__closure__", None) or ()
    for part in (function, *(cell.cell_contents for cell in cells)):
        home = getattr(part, "__module__", None)
        if isinstance(home, str) and (part is function or isinstance(part, python_types.FunctionType)):
            yield home
