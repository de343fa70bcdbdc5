"""Importing this ends the program with one line if a package is missing that everything needs, instead of a traceback."""

from __future__ import annotations

import importlib.util
import sys

PACKAGES = ("torch", "numpy", "mpmath", "pytest", "xdist", "hypothesis", "rich", "jinja2", "filelock")


def is_there(package: str) -> bool:
    """Whether it can be imported; it is not imported."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


if missing := [package for package in PACKAGES if not is_there(package)]:
    print(f"flash-attest needs {', '.join(missing)}: pip install -r requirements.txt", file=sys.stderr)
    raise SystemExit(4)  # as pytest ends if the command is wrong
