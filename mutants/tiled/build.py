"""Builds mutants of implementations that consist of tensor operations: one edited module,
python_tiled.py unless the mutant names another.
"""

from __future__ import annotations

import linecache
from types import ModuleType
from typing import Any

from flash_attest.mutants.mutant import IMPLS, Family, Mutant


def load(mutant: Mutant, text: str) -> ModuleType:
    """Return the edited module. Its text is put into linecache, so tracebacks show the edited
    lines.
    """
    shown = f"<mutant {mutant.name} of {mutant.file.name}>"
    linecache.cache[shown] = (len(text), None, text.splitlines(keepends=True), shown)
    module = ModuleType(f"flash_attest.mutants.built.{mutant.name}")
    module.__file__ = str(mutant.file)
    exec(compile(text, shown, "exec"), module.__dict__)
    return module


TILED = Family("tiled", IMPLS, load)


def planted(
    *, impl: str = "python_tiled", source: str = "", declares: dict[str, Any] | None = None, **fields: Any
) -> Mutant:
    """Return a mutant of impls/<impl>.py, or of `source` there, judged on cases of all sizes."""
    declares = {"share": 1.0} | (declares or {})
    return Mutant(family=TILED, source=source or f"{impl}.py", impl=impl, declares=declares, **fields)
