"""Prints failures as annotations of GitHub Actions, which shows them at the line of the
implementation or the kernel.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from flash_attest.runner.causes import Cause

MOST = 10  # GitHub shows no more errors of one step


def wanted() -> bool:
    """Return whether this runs in a job of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def annotations(causes: Iterable[Cause]) -> Iterator[str]:
    """Yield a workflow command for each cause: ::error file=mine.py,line=12,title=...::message"""
    for cause in list(causes)[:MOST]:
        file, _, line = (cause.first["found_at"] or cause.first["declared_at"]).rpartition(":")
        where = {"file": _in_repository(file), "line": line} if file else {}
        title = f"{cause.impl}: {cause.first['law']}"
        properties = ",".join(f"{name}={_escaped(text, ',:')}" for name, text in (where | {"title": title}).items())
        text = "\n".join(filter(None, [f"{cause.heading}", cause.shared, cause.first["replay"]]))
        yield f"::error {properties}::{_escaped(text)}"


def _in_repository(file: str) -> str:
    """Return a path from the root of the repository, where GitHub looks for it."""
    root = os.environ.get("GITHUB_WORKSPACE")
    path = Path(file).resolve()
    return str(path.relative_to(root)) if root and path.is_relative_to(root) else file


def _escaped(text: str, more: str = "") -> str:
    """Escape characters that have a meaning in a workflow command."""
    for character in f"%\r\n{more}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text
