"""Ends the program with one line, and no traceback, if a required package is missing."""

from __future__ import annotations

import sys

from flash_attest.packages import NEEDED, is_there
from flash_attest.places import IN_CHECKOUT

STATUS = 4  # pytest's exit status for a wrong command


def sentence(missing: list[str]) -> str:
    """Return the line about missing modules. In a checkout it names the versions that CI tests."""
    packages = "-r requirements.txt" if IN_CHECKOUT else " ".join(NEEDED[module] for module in missing)
    return f"flash-attest needs {', '.join(missing)}: pip install {packages}"


if missing := [module for module in NEEDED if not is_there(module)]:
    print(sentence(missing), file=sys.stderr)
    raise SystemExit(STATUS)
