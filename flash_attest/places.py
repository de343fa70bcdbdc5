"""Where things are: the rooms stand at the root of a checkout; installed, they are folders of the package."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
# What has the rooms: the root of a checkout, where the package holds links to them, or the installed package itself.
ROOMS = (PACKAGE / "oracle").resolve().parent
IN_CHECKOUT = ROOMS != PACKAGE
IMPORTED_FROM = PACKAGE.parent  # a process that starts in this folder can import flash_attest
