"""Builds mutants of impls/triton: each is the whole package with one edited file, imported from a
copy.

On the CPU they run in the emulator, with small tiles (emulated_tile of impls/triton/tuning.py).
"""

from __future__ import annotations

import linecache
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import torch

from flash_attest.impls import Supports
from flash_attest.mutants.loading import import_copy
from flash_attest.mutants.mutant import IMPLS, Family, Mutant


def load(mutant: Mutant, text: str) -> ModuleType:
    """Return the edited package under another name, because its modules import each other.

    The copy is deleted when this returns. linecache keeps its lines, because Triton reads a
    kernel's source when it runs it.
    """
    package = mutant.file.parent
    with TemporaryDirectory() as directory:
        copy = Path(directory) / package.name
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / mutant.file.name).write_text(text)
        module = import_copy(mutant, copy / "__init__.py")
        for path in map(str, copy.glob("*.py")):
            lines = linecache.getlines(path)
            # None keeps linecache from checking the disk.
            linecache.cache[path] = (sum(map(len, lines)), None, lines, path)
    return module


def lacking(mutant: Mutant) -> str:
    """Return what this process lacks: Triton, or the mutant's device."""
    from flash_attest.impls.triton import device  # imported here, as it imports Triton

    if reason := device.lacking():
        return reason
    if mutant.device == "cpu" and not device.EMULATED:
        return "is judged on a CPU: add --device cpu"
    return ""


TRITON = Family("triton", IMPLS / "triton", load, lacking)


def planted(*, impl: str = "triton_fa2", **fields: Any) -> Mutant:
    """Return a mutant of a file of impls/triton."""
    return Mutant(family=TRITON, impl=impl, **fields)


def supporting(*dtypes: torch.dtype, backward: bool = True, **features: Any) -> dict[str, Any]:
    """Return fields of an Implementation that supports only these features, so that every drawn
    case uses them.

    Head dims are those that the unedited kernels support on a CPU; `share` makes the cases smaller.
    """
    supports = Supports(dtypes=dtypes or {torch.float16}, headdims=range(1, 129), **features)
    return dict(supports=supports, share=0.01, **({} if backward else {"backward": None}))
