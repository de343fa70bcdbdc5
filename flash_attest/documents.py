"""The documents that an installation brings, and the sections in them: docs/use, docs/why, and
docs/findings.md.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from flash_attest.places import ROOMS

FOLDER = ROOMS / "docs"
PARTS = ("use", "why")
FENCE = re.compile(r"^ *(```+|~~~+)")
HEADING = re.compile(r"^(#{1,6}) +(.*?) *$")


class Section(NamedTuple):
    """A heading with the text below it, up to the next heading of its level or a higher one."""

    anchor: str  # as GitHub and the site name it
    level: int
    title: str
    line: int  # of the heading, from 1
    text: str


def documents() -> dict[str, Path]:
    """Return name -> file of every document: "bugs" is docs/why/bugs.md."""
    parts = [path for part in PARTS for path in sorted((FOLDER / part).glob("*.md"))]
    return {path.stem: path for path in [*parts, FOLDER / "findings.md"]}


def title_of(path: Path) -> str:
    """Return the title of a document."""
    return sections(path.read_text(encoding="utf-8"))[0].title


def sections(text: str) -> list[Section]:
    """Return the sections of a Markdown text in order. A section holds those below it, too."""
    lines, headings, fence = text.splitlines(), [], ""
    for number, line in enumerate(lines):
        if found := FENCE.match(line):
            fence = "" if fence and found[1].startswith(fence) else fence or found[1]
        elif not fence and (found := HEADING.match(line)):
            headings.append((len(found[1]), found[2], number))
    result, seen = [], {}
    for n, (level, title, number) in enumerate(headings):
        end = next((later for other, _, later in headings[n + 1 :] if other <= level), len(lines))
        anchor = anchor_of(title)
        again = seen[anchor] = seen.get(anchor, -1) + 1
        inside = "\n".join(lines[number:end]).rstrip() + "\n"
        result.append(Section(f"{anchor}-{again}" if again else anchor, level, title, number + 1, inside))
    return result


def anchor_of(title: str) -> str:
    """Return the anchor that GitHub makes of a heading."""
    plain = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", title)
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
