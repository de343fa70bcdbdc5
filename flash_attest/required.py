"""Importing this ends the program with one line, instead of a traceback, if a package is missing that everything needs."""

from __future__ import annotations

import sys

from flash_attest.packages import NEEDED, is_there
from flash_attest.places import IN_CHECKOUT

STATUS = 4  # as pytest ends if the command is wrong


def sentence(missing: list[str]) -> str:
    """Return the line for modules that are missing. In a checkout CI's list installs them, as tested versions."""
    wanted = "-r requirements.txt" if IN_CHECKOUT else " ".join(NEEDED[module] for module in missing)
    return f"flash-attest needs {', '.join(missing)}: pip install {wanted}"


if missing := [module for module in NEEDED if not is_there(module)]:
    print(sentence(missing), file=sys.stderr)
    raise SystemExit(STATUS)
