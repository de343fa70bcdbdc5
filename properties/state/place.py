"""A function that was replaced in a module or class: whether that counts, who did it, and how it
is restored.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from types import ModuleType
from typing import Any, NamedTuple

import torch

SUITE = "flash_attest"
JUDGING = (SUITE, "hypothesis")  # packages whose modules are all watched
PACKAGES = frozenset({*JUDGING, "torch", "numpy", *sys.stdlib_module_names})
FOLDER_OF_TORCH = os.path.dirname(torch.__file__)
SET_BY_TORCH = {"Storage"}  # by torch.set_default_dtype
HOOKS = {  # made to be replaced; process_things.py and import_things.py watch them
    "sys": {"excepthook", "unraisablehook", "displayhook", "breakpointhook"},
    "threading": {"excepthook"},
    "warnings": {"showwarning", "formatwarning"},
}
_NOTHING = object()

# The builtins may be replaced, too, so what restores them keeps its own references.
_is, _callable, _getattr = isinstance, callable, getattr
_set_on_class, _delete_on_class = type.__setattr__, type.__delattr__
_FUNCTIONS = (ModuleType, staticmethod, classmethod, property)  # these are watched, and whatever is callable


class Replaced(NamedTuple):
    """A function that was replaced, and is restored.

    place: where it is. name: its name there. by: what replaced it.
    """

    place: Place
    name: str
    by: object

    @property
    def full_name(self) -> str:
        """Its name, behind the name of its module or class."""
        return f"sys.modules[{self.name!r}]" if self.place.owner is sys.modules else f"{self.place.name}.{self.name}"

    def library(self) -> str:
        """Return the installed library that put its own function in the place of a private one of
        Python, as beartype does in typing. Returns "" for any other replacement.

        Who imports such a library can do nothing about it, and a program notices nothing.
        """
        python = self.place.owner is not sys.modules and top(self.place.name) in sys.stdlib_module_names
        if not python or not self.name.startswith("_") or self.name.startswith("__"):
            return ""
        library = top(_written_in(self.by))
        return library if library in packages_distributions() else ""


@dataclass(frozen=True)
class Place:
    """A module or class whose functions are watched. attributes: its namespace, not a copy."""

    name: str
    owner: object
    attributes: Mapping[str, Any]

    def put_back(self, before: Mapping[str, Any]) -> Iterator[Replaced]:
        """Restore each function that differs from a copy of the namespace, and yield it."""
        now = self.attributes.copy()
        for name, was in before.items():
            new = now.get(name, _NOTHING)
            if (
                new is not was
                and self._watches(name, was)
                and not (_is_expected(new, was) or self._is_of_its_library(name, new))
            ):
                self._set(name, was)
                yield Replaced(self, name, new)
        for name, new in now.items():
            if name not in before and self._shadows(name) and not self._is_of_its_library(name, new):
                self._delete(name)
                yield Replaced(self, name, new)

    def _watches(self, name: str, value: object) -> bool:
        if self.owner is sys.modules:
            # A module without a spec was not imported: torch.compile makes such modules for its
            # kernels, and removes them.
            return top(name) in PACKAGES and _getattr(value, "__spec__", None) is not None
        if (self.owner is torch and name in SET_BY_TORCH) or name in HOOKS.get(self.name, ()):
            return False
        limit = name.isupper() and self.name.startswith(SUITE)  # the suite's constants count
        return limit or _callable(value) or _is(value, _FUNCTIONS)

    def _shadows(self, name: str) -> bool:
        """Return whether a new name hides an inherited method, or a builtin in a module of ours."""
        if _is(self.owner, type):
            return _callable(_getattr(self.owner.__base__, name, None))
        return self.name.startswith(JUDGING) and name in builtins.__dict__

    def _is_of_its_library(self, name: str, value: object) -> bool:
        """Return whether a library replaces its own function, as torch._dynamo wraps
        torch.manual_seed.
        """
        if value is _NOTHING or self.owner is sys.modules:
            return False
        # Libraries also give their classes new properties, made by functions of any name.
        same = _is(value, property) or _getattr(_function(value), "__name__", None) == name
        return same and top(_written_in(value)) == top(self.name)

    def _set(self, name: str, value: object) -> None:
        if _is(self.owner, type):
            _set_on_class(self.owner, name, value)
        else:
            self.attributes[name] = value

    def _delete(self, name: str) -> None:
        if _is(self.owner, type):
            _delete_on_class(self.owner, name)
        else:
            del self.attributes[name]


def top(name: str) -> str:
    """Return the package of a module's name."""
    return name.partition(".")[0]


def _function(value: object) -> object:
    return _getattr(value, "fget", None) or _getattr(value, "__func__", value)


def _written_in(value: object) -> str:
    """Return the module in which a function was written; "" if it does not say.

    A decorator may copy names, so this is the module of its globals.
    """
    function = _function(value)
    module = _getattr(function, "__globals__", {}).get("__name__") or _getattr(function, "__module__", None)
    return module if _is(module, str) else ""


def _is_expected(new: object, was: object) -> bool:
    """Return whether the suite itself replaced a function, or torch wrapped its own.

    The emulator answers for torch (emulator/guards.py), drawing cases changes Hypothesis, and
    importing torch.compile's modules wraps torch.manual_seed.
    """
    module, code = _getattr(new, "__module__", None), _getattr(new, "__code__", None)
    if _is(module, str) and module.startswith(f"{SUITE}."):
        return True
    return _getattr(new, "__wrapped__", None) is was and _getattr(code, "co_filename", "").startswith(FOLDER_OF_TORCH)
