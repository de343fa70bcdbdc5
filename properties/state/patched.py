"""Functions that an implementation replaces in torch, the standard library, or the suite itself.

A replaced torch.equal changes what the suite's own comparisons return, or makes them raise.
"""

from __future__ import annotations

import builtins
import gc
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from operator import itemgetter
from types import ModuleType
from typing import Any

import torch

from flash_attest.places import ROOMS
from flash_attest.properties.state.place import JUDGING, PACKAGES, SUITE, Place, Replaced, top

OF_A_RUN = frozenset(
    {*PACKAGES, "_pytest", "pytest", "pluggy", "xdist", "execnet", "rich", "triton", "numba", "llvmlite"}
)
INNER_OF_TORCH = {"nn", "utils", "backends", "autograd", "cuda"}  # of torch.compile and others, no run uses much
OF_TORCH = (torch, torch.Tensor, torch.nn.functional)  # what the suite computes with
VERDICTS = tuple(f"{SUITE}.{room}" for room in ("oracle", "properties", "impls.contract", "races"))
OTHERS = (
    "torch", "torch.nn.functional", "contextlib", "dataclasses", "functools", "itertools", "json",
    "json.encoder.JSONEncoder", "math", "time",
)  # fmt: skip
MOST_NAMED = 3
_IMMUTABLE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE, the flag of classes that cannot be patched


class Functions:
    """The functions of some places, as they are when this is made.

    often: how many of them, from the first on, `put_back` looks at unless it is asked for all.
    """

    def __init__(self, places: Iterable[Place], often: int | None = None):
        self._modules, self._often = len(sys.modules), often
        self._kept = [(place, place.attributes, place.attributes.copy()) for place in places]

    @property
    def complete(self) -> bool:
        """Whether no module has been imported since."""
        return self._modules == len(sys.modules)

    def put_back(self, *, all_places: bool = True) -> list[str]:
        """Restore every function that was replaced, and return their names."""
        return [each.full_name for each in self.undo(all_places=all_places)]

    def undo(self, *, all_places: bool = True) -> list[Replaced]:
        """Restore every function that was replaced, and return them.

        What a module adds to itself is left alone. If nothing was replaced, this takes 10 to 20 ns
        for each name, or 100 to 250 ns if the processor's caches hold other data.
        """
        replaced = []
        for place, attributes, before in self._kept if all_places else self._kept[: self._often]:
            try:
                if attributes == before:
                    continue
            except Exception:  # some values cannot be compared, for example arrays
                pass
            replaced += place.put_back(before)
        return replaced


class Near:
    """The functions that are compared after each call, as they are when this is made.

    They are those that the suite calls by name in torch, those of torch.Tensor, and the builtins.
    """

    def __init__(self):
        self._used = _used_of_torch()
        self._torch = self._used(vars(torch))
        self._others = Functions(_NEAR)

    def put_back(self) -> list[str]:
        """Restore every function that was replaced, and return their names."""
        names = self._others.put_back()
        try:
            if self._used(vars(torch)) == self._torch:
                return names
        except Exception:  # a name is gone, or values cannot be compared
            pass
        before = dict(zip(_names_of_torch(), self._torch, strict=True))
        return [*names, *(each.full_name for each in _TORCH.put_back(before))]


def modules() -> Functions:
    """Return the modules that Python knows, as of the last import. A call must not remove any."""
    global _loaded_modules
    if not _loaded_modules.complete:
        _loaded_modules = Functions([_MODULES])
    return _loaded_modules


@cache
def _names_of_torch() -> list[str]:
    """Return the names in torch that the judging part of the suite uses, as its sources say."""
    files = [path for room in VERDICTS for path in (ROOMS / room.partition(".")[2].replace(".", "/")).rglob("*.py")]
    used = {name for path in files for name in re.findall(r"\btorch\.(\w+)", path.read_text(encoding="utf-8"))}
    return sorted(name for name in used & vars(torch).keys() if callable(getattr(torch, name)))


@cache
def _used_of_torch() -> itemgetter:
    return itemgetter(*_names_of_torch())


def everything() -> Functions:
    """Return the functions that are compared after each law, or if the suite raises.

    After each law these are what a verdict depends on: the judging part of the suite, and a few
    modules of Python. If the suite raises, they are also the rest of the suite, Hypothesis, and the
    modules that the suite imports.
    """
    global _cached
    modules = sys.modules.copy()
    if _cached[0] != len(modules):  # there were further imports
        often, others = [], []
        for place in map(_place, _owners(modules)):
            (often if place.name.startswith(VERDICTS) or place.name in OTHERS else others).append(place)
        _cached = len(modules), [*often, *others], len(often)
    return Functions(*_cached[1:])


def keep_for_forks() -> None:
    """Compute in this process what each fork of it would compute, which takes 0.1 s."""
    torch.get_default_device()  # imports a module, after which everything would be computed again
    everything()
    _used_of_torch()


def loaded() -> Functions:
    """Return the functions and classes of all loaded modules, which are compared after an import.

    This takes 10 to 20 ms, as the comparison does.
    """
    global _cached_all
    enabled = gc.isenabled()
    gc.disable()  # the new dicts would start a collection, which takes 0.1 s
    try:
        if _cached_all[0] != len(sys.modules):
            _cached_all = len(sys.modules), [*map(_place, _loaded())]
        return Functions(_cached_all[1])
    finally:
        if enabled:
            gc.enable()


def words(what: str, names: list[str]) -> str:
    """Return the problem in words: "forward replaces torch.equal and does not restore it"."""
    shown = ", ".join(names[:MOST_NAMED])
    if len(names) > MOST_NAMED:
        shown += f" and {len(names) - MOST_NAMED} more"
    return f"{what} replaces {shown} and does not restore {'it' if len(names) == 1 else 'them'}"


def _owners(modules: Mapping[str, ModuleType]) -> list[object]:
    """Return the modules and classes to watch."""
    loaded = [module for module in modules.values() if isinstance(module, ModuleType)]
    judging = [module for module in loaded if _package(module) in JUDGING]
    suite = [module for module in judging if _package(module) == SUITE]
    imported = [v for m in suite for v in vars(m).values() if isinstance(v, ModuleType) and _package(v) in PACKAGES]
    python = [module for module in imported if _package(module) in sys.stdlib_module_names]
    # "from dataclasses import replace" names the module, too.
    named = {getattr(value, "__module__", None) for module in suite for value in vars(module).values()}
    python += [modules[name] for name in named & modules.keys() if top(name) in sys.stdlib_module_names]
    with_classes = [*suite, *(module for module in python if module.__name__ in OTHERS)]
    classes = [value for module in with_classes for value in vars(module).values() if isinstance(value, type)]
    changeable = [cls for cls in classes if not cls.__flags__ & _IMMUTABLE]
    owners = (builtins, *OF_TORCH, sys.modules, *imported, *python, *judging, *changeable)
    return [*{id(owner): owner for owner in owners}.values()]


def _loaded() -> Iterator[object]:
    """Yield the builtins, other modules that a run may use, and the classes that these define."""
    yield builtins
    for name, module in [*sys.modules.items()]:
        top, _, inner = name.partition(".")
        # type() is asked, as isinstance() makes some lazy modules import more.
        if type(module) is not ModuleType or top not in OF_A_RUN or name in ("__main__", "builtins"):
            continue
        if top == "torch" and "." in inner and inner.partition(".")[0] not in INNER_OF_TORCH:
            continue
        yield module
        for value in [*vars(module).values()]:
            if issubclass(type(value), type) and vars(value).get("__module__") == name:
                yield value


def _package(module: ModuleType) -> str:
    return top(module.__name__)


def _place(owner: Any) -> Place:
    if owner is sys.modules:
        return _MODULES
    name = owner.__name__ if isinstance(owner, ModuleType) else f"{owner.__module__}.{owner.__qualname__}"
    return Place(name, owner, vars(owner))


_MODULES = Place("sys.modules", sys.modules, sys.modules)
_TORCH = _place(torch)
_NEAR = [*map(_place, (builtins, torch.Tensor))]
_loaded_modules = Functions([_MODULES])
_cached: tuple[int, list[Place], int] = 0, [], 0  # (number of modules, places, how many are compared often)
_cached_all: tuple[int, list[Place]] = 0, []
