"""Paths of the rooms: at the root of a checkout, or in the installed package."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
# The folder of the rooms. In a checkout it is the root, and the package holds links to them.
ROOMS = (PACKAGE / "oracle").resolve().parent
IN_CHECKOUT = ROOMS != PACKAGE
IMPORTED_FROM = PACKAGE.parent  # a process that starts in this folder can import flash_attest
