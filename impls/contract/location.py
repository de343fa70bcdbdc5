"""Finds the file and line of an implementation, for messages and annotations."""

from __future__ import annotations

import inspect
from pathlib import Path

from flash_attest.impls.contract.entry import Entry


def declared_at(entry: Entry) -> str:
    """Return "FILE:LINE" of an implementation, as annotations name it; "" if it is not known.

    A file below the current folder is named from there.
    """
    try:
        return _declared_at(entry)
    except Exception:  # a function may wrap itself, and its file have a name that no file has
        return ""


def _declared_at(entry: Entry) -> str:
    code = getattr(inspect.unwrap(getattr(entry.impl, "forward", None)), "__code__", None)
    file, line = (code.co_filename, code.co_firstlineno) if code else (entry.file, 1)
    if entry.option and Path(entry.file).is_file() and Path(file).resolve() != Path(entry.file).resolve():
        file, line = entry.file, 1  # of an adapter, or of a kernel process
    if not Path(file).is_file():
        return ""
    path = Path(file).resolve()
    return f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}:{line}"
