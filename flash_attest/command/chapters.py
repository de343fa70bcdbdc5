"""Reads the names of the laws from the sources.

Importing the chapters takes seconds, which is too long to report a misspelt name.
"""

from __future__ import annotations

import ast
from functools import cache

from flash_attest.did_you_mean import did_you_mean
from flash_attest.places import ROOMS

PREFIX = "test_"


class UnknownName(ValueError):
    """There is no such law or chapter. The message suggests a similar name."""


@cache
def laws_by_chapter() -> dict[str, tuple[str, ...]]:
    """Return the tests by chapter: "test_causal": ("test_query_sees_exactly_its_prefix", ...)."""
    tests = {}
    for path in sorted((ROOMS / "properties").glob(f"{PREFIX}*.py")):
        functions = (
            node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)
        )
        tests[path.stem] = tuple(f.name for f in functions if f.name.startswith(PREFIX))
    return tests


def place_of(law: str) -> tuple[str, str]:
    """Return the chapter and name of a law; test_ may be left out. Raises UnknownName."""
    name = f"{PREFIX}{law.removeprefix(PREFIX)}"
    for chapter, tests in laws_by_chapter().items():
        if name in tests:
            return chapter, name
    known = [test.removeprefix(PREFIX) for tests in laws_by_chapter().values() for test in tests]
    hint = did_you_mean(law.removeprefix(PREFIX), known)
    raise UnknownName(f"no law is called {law}{hint} (flash-attest laws lists them)")


def chapter_of(text: str) -> str:
    """Return the name of a chapter; test_ may be left out.

    Raises UnknownName, with the known names.
    """
    name, known = text.removeprefix(PREFIX), [chapter.removeprefix(PREFIX) for chapter in laws_by_chapter()]
    if name not in known:
        raise UnknownName(f"no chapter is called {text}{did_you_mean(name, known)} (chapters: {', '.join(known)})")
    return f"{PREFIX}{name}"
