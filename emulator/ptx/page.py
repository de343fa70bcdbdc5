"""Writes the table of opcodes into docs/use/tracing-ptx.md. A test compares the two.

Run it with python -m flash_attest.emulator.ptx.page.
"""

from __future__ import annotations

from pathlib import Path

from flash_attest.emulator.ptx.instructions import AFTER, CACHE, HINT, HINTS, POINTER_SPACE, SCOPES, SPACE, TABLE
from flash_attest.emulator.ptx.rows import Row
from flash_attest.emulator.ptx.spelling import plain

PAGE = Path(__file__).resolve().parents[2] / "docs" / "use" / "tracing-ptx.md"
START, END = (
    "<!-- the table of opcodes: python -m flash_attest.emulator.ptx.page -->\n",
    "<!-- the end of the table -->\n",
)
SHORT = {
    HINTS: "(cache hints)", CACHE: "(cache hints)", SCOPES: "(ordering)", SPACE: "[.space]", POINTER_SPACE: "(.space)",
    HINT: "", AFTER: "(ordering)",
}  # fmt: skip


def table() -> str:
    """Return the table in Markdown."""
    lines = []
    for section, rows in TABLE.items():
        lines += ["", f"### {section}", "", "```text", *map(_line, rows), "```"]
    return "\n".join([*lines, "", ""])


def _line(row: Row) -> str:
    spelling = row.spelling
    for long, short in SHORT.items():
        spelling = spelling.replace(long, short)
    shown = plain(spelling).replace("(cache hints)(cache hints)", "(cache hints)")
    return f"{shown}  # {row.note}" if row.note else shown


def page(text: str) -> str:
    """Return the page with the current table."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return before + START + table() + END + after


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
