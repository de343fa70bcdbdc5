"""Builds mutants of impls/numba: the package with one edited file, imported from copies.

Compiling a kernel takes a second, so a mutant compiles only the kernels that its edit changes. Its
other modules come from one unedited copy, which all mutants share. The name and the folder of a
copy depend only on its contents, so they are the same in every process, and compiled kernels are
found again. On the CPU the copies use the original's tiles, but only for head dims up to 64, which
compile in half the time.
"""

from __future__ import annotations

import ast
import sys
from functools import cache, partial
from types import ModuleType
from typing import Any

import torch

from flash_attest.impls import Supports
from flash_attest.mutants.loading import import_as, kept_folder
from flash_attest.mutants.mutant import IMPLS, Family, Mutant
from flash_attest.mutants.mutant import planted as planted_in

FOLDER = IMPLS / "numba"
LARGEST_HEADDIM = 64  # limit of the copies on a CPU: the smallest D of a tile


def load(mutant: Mutant, text: str) -> ModuleType:
    """Return the package with this text as the edited file.

    Modules that do not import the edited file, directly or indirectly, are shared.
    """
    if text == mutant.file.read_text():
        return unedited()
    changed = {"__init__", mutant.file.stem}
    while more := {stem for stem, imported in imports().items() if imported & changed} - changed:
        changed |= more
    modules = unedited().__name__
    shared = {stem: sys.modules.get(f"{modules}.{stem}") for stem in imports().keys() - changed}
    return _import(_sources() | {mutant.file.name: text}, shared)


@cache
def unedited() -> ModuleType:
    """Return the one copy of the whole package without an edit."""
    return _import(_sources(), {})


@cache
def imports() -> dict[str, set[str]]:
    """Map each module to the modules of the package that it imports; the package itself is
    __init__.
    """
    graph = {}
    for path in FOLDER.glob("*.py"):
        nodes = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom) and n.level == 1]
        graph[path.stem] = {name for n in nodes for name in ([n.module] if n.module else [x.name for x in n.names])}
    return graph


def _sources() -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(FOLDER.glob("*.py"))}


def _import(files: dict[str, str], shared: dict[str, ModuleType | None]) -> ModuleType:
    """Import the package of these files, replacing some of its modules by the given ones."""
    folder = kept_folder(files)
    name = f"numba_{folder.name}"
    if name in sys.modules:
        return sys.modules[name]
    sys.modules |= {f"{name}.{stem}": module for stem, module in shared.items() if module}
    module = import_as(name, folder / "__init__.py")
    tuning = sys.modules.get(f"{name}.tuning")  # None without Numba
    if tuning and "tuning" not in shared:
        small = {kernel: tiles[0]._replace(D=LARGEST_HEADDIM) for kernel, tiles in tuning.EMULATED_TILES.items()}
        tuning.EMULATED_TILES = {kernel: (tile,) for kernel, tile in small.items()}
    return module


def lacking(mutant: Mutant) -> str:
    """Return what this process lacks: Numba, or the mutant's device."""
    from flash_attest.impls.numba import device  # imported here, as it imports Numba

    if reason := device.lacking():
        return reason
    if mutant.device == "cpu" and not device.EMULATED:
        return "is judged on a CPU: add --device cpu"
    return ""


NUMBA = Family("numba", FOLDER, load, lacking)


def supporting(*dtypes: torch.dtype, backward: bool = True, **features: Any) -> dict[str, Any]:
    """Return fields of an Implementation that supports only these features, so that every drawn
    case uses them.

    `share` makes the cases smaller.
    """
    supports = Supports(dtypes=dtypes or {torch.float32}, headdims=range(1, 33), **features)
    return dict(supports=supports, share=0.01, **({} if backward else {"backward": None}))


FORWARD = supporting(backward=False, cross=True)


planted = partial(planted_in, NUMBA, impl="numba_fa2")
