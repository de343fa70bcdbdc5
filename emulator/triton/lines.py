"""Source files in the PTX: findings name the files of the launched kernel, even if a copy of them
was compiled first.

Triton's cache uses the text of a kernel as its key. A copy of a source, in another checkout or a
temporary folder, may have been compiled first, and findings would then point to its lines.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

FILE = re.compile(r'^(\s*\.file\s+\d+\s+")([^"]+)(")', re.M)


def relocated(ptx: str, kernel: Any) -> str:
    """Return the PTX with the files of a kernel (a JITFunction) and of all functions that it may
    call.
    """
    known: dict[str, set[str]] = {}
    for file in _files(kernel, set()):
        known.setdefault(Path(file).name, set()).add(file)

    def named(match: re.Match) -> str:
        files = known.get(Path(match[2]).name, {match[2]})
        file = match[2] if match[2] in files else max(sorted(files), key=lambda file: _common(file, match[2]))
        return f"{match[1]}{file}{match[3]}"

    return FILE.sub(named, ptx)


def _files(function: Any, seen: set[int]) -> set[str]:
    """Return the file of a jitted function, and the files of the functions that its module names,
    because it may call them.
    """
    python = getattr(function, "fn", None)
    code = getattr(python, "__code__", None)
    if code is None or id(python.__globals__) in seen:
        return {code.co_filename} if code else set()
    seen.add(id(python.__globals__))
    files = {code.co_filename}
    for value in list(python.__globals__.values()):
        inside = vars(value).values() if isinstance(value, ModuleType) and _has_kernels(value) else [value]
        for each in list(inside):
            if hasattr(each, "cache_key") and hasattr(each, "fn"):
                files |= _files(each, seen)
    return files


def _has_kernels(module: ModuleType) -> bool:
    return "triton" in vars(module) or "tl" in vars(module)


def _common(one: str, other: str) -> int:
    """Return how many of the last components of two paths agree."""
    pairs = zip(reversed(Path(one).parts), reversed(Path(other).parts), strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), 99)
