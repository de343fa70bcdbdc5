"""docs/use/tracing-triton.md and tracing-hopper.md are correct: their examples run and print the
quoted text, and are correct with the fix.
"""

import re
from dataclasses import dataclass

import pytest

pytest.importorskip("triton")

from tests.places import ROOT
from tests.runs import python


@dataclass(frozen=True)
class Page:
    """An example of a page: three code blocks with the program, what it prints, and its fix."""

    name: str
    file: str
    first: int = 0  # block

    @property
    def blocks(self) -> list[str]:
        text = (ROOT / "docs" / "use" / self.name).read_text()
        return re.findall(r"^```\w*\n(.*?)^```$", text, flags=re.M | re.S)[self.first : self.first + 3]


PAGES = [
    Page("tracing-triton.md", "normalize.py"),
    Page("tracing-hopper.md", "matmul.py"),
    Page("tracing-hopper.md", "scale.py", 3),
    Page("tracing-hopper.md", "share.py", 6),
]
each = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.file)


def printed(folder, page, text):
    (folder / page.file).write_text(text)
    done = python(page.file, folder=folder)
    assert done.stderr == ""
    return done.stdout


@each
def test_the_example_prints_what_the_text_says(page, tmp_path):
    example, quoted, _ = page.blocks
    assert printed(tmp_path, page, example) == quoted


@each
def test_the_fixed_example_has_no_race_and_is_right(page, tmp_path):
    example, _, fix = page.blocks
    before, after = ("".join(line[1:] for line in fix.splitlines(True) if line[0] in signs) for signs in (" -", " +"))
    assert example.count(before) == 1
    (line,) = printed(tmp_path, page, example.replace(before, after)).splitlines()
    assert float(line.removeprefix("wrong by ")) < 1e-7
