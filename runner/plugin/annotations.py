"""Prints failures as annotations of GitHub Actions, which shows them at the line of the
implementation or the kernel.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from flash_attest.properties.judging.verdict import law_name
from flash_attest.runner.causes import Cause

MOST = 10  # GitHub shows no more errors of one step


def wanted() -> bool:
    """Return whether this runs in a job of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def annotations(
    causes: Iterable[Cause],
    undecided: Iterable[dict] = (),
    unjudged: Mapping[str, str] = MappingProxyType({}),
    results: Iterable[dict] = (),
) -> Iterator[str]:
    """Yield a workflow command for each cause, for each reason why laws are undecided, and for each
    implementation of which no law was judged.

    ::error file=mine.py,line=12,title=...::message
    """
    lines = [_line(cause.first, cause.heading, cause.shared, cause.first["replay"]) for cause in causes]
    reasons = {(result["impl"], result["reason"]): result for result in undecided}
    lines += [_line(result, f"unknown: {result['reason']}", result["replay"]) for result in reasons.values()]
    firsts = {result["impl"]: result for result in reversed([*results])}
    lines += [_line(firsts[impl], f"nothing was judged of {impl}: {why}") for impl, why in unjudged.items()]
    yield from lines[:MOST]


def _line(result: dict, *texts: str) -> str:
    """Return an error at the line of a kernel, or where the implementation is declared."""
    file, _, line = (result["found_at"] or result["declared_at"]).rpartition(":")
    where = {"file": _in_repository(file), "line": line} if file else {}
    named = where | {"title": f"{result['impl']}: {law_name(result['law'])}"}
    properties = ",".join(f"{name}={_escaped(text, ',:')}" for name, text in named.items())
    return f"::error {properties}::{_escaped(chr(10).join(filter(None, texts)))}"


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
