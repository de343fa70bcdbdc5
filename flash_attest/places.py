"""Paths of the rooms: at the root of a checkout, or in the installed package."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
# The folder of the rooms. In a checkout it is the root, and the package holds links to them.
ROOMS = (PACKAGE / "oracle").resolve().parent
IN_CHECKOUT = ROOMS != PACKAGE
IMPORTED_FROM = PACKAGE.parent  # a process that starts in this folder can import flash_attest


def document(path: str) -> str:
    """Return how a message names a document, for people who want to read it.

    path: below docs/, with a section: "why/bugs.md#masks". In a checkout that is the path of the
    file. An installation has a command that shows it: "flash-attest docs bugs#masks".
    """
    if IN_CHECKOUT:
        return f"docs/{path}"
    file, _, section = path.partition("#")
    name = Path(file).stem
    return f"flash-attest docs {name}#{section}" if section else f"flash-attest docs {name}"
