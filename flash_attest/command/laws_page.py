"""Writes the laws into docs/use/laws.md: python -m flash_attest.command.laws_page.

A test compares the two.
"""

from __future__ import annotations

import importlib
from itertools import groupby

from flash_attest.command.chapters import PREFIX
from flash_attest.command.laws import described, needs_of
from flash_attest.places import ROOMS

PAGE = ROOMS / "docs" / "use" / "laws.md"
START = "<!-- the laws: python -m flash_attest.command.laws_page -->\n"


def page(text: str) -> str:
    """Return the page with the laws that are current."""
    before, _, _ = text.partition(START)
    return before + START + laws()


def laws() -> str:
    """Return a section for each chapter and each of its laws, in Markdown."""
    lines: list[str] = []
    for chapter, inside in groupby(described(), key=lambda law: law["chapter"]):
        module = importlib.import_module(f"flash_attest.properties.{PREFIX}{chapter}")
        lines += ["", f"## {chapter}", "", module.__doc__.split("\n\n")[0]]
        for law in inside:
            lines += ["", f"### {law['name'].removeprefix(PREFIX)}", "", "```text", law["rule"], "```", "", _facts(law)]
    return "\n".join([*lines, ""])


def _facts(law: dict) -> str:
    """Return what a law needs and catches, as a list."""
    bugs, (first, *_) = law["planted"], law["planted"]
    facts = [f"needs {needs_of(law)}"] if needs_of(law) else ["judges every implementation"]
    if law["bugs"]:
        facts += [f"[real bugs](../{law['bugs'].removeprefix('docs/')}) of this kind"]
    count = "a planted bug" if len(bugs) == 1 else f"one of {len(bugs)} planted bugs"
    facts += [f"{count} that it catches: `{first['name']}`, {first['story']}"]
    return "\n".join(f"- {fact}" for fact in facts)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
