"""flash-attest docs."""

import subprocess
import sys

import pytest

from flash_attest import documents
from flash_attest.command import docs as command
from tests.command.test_command import refused
from tests.places import ROOT

BUGS = ROOT / "docs" / "why" / "bugs.md"
TEXT = """\
# One
```
# no heading
```
## Two `code` and [a link](x.md)
a
### Three
b
## One
c
"""


def test_the_list_names_every_document_of_use_and_why(capsys):
    assert command.run([]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines]
    inside = [path.stem for part in ("use", "why") for path in sorted((ROOT / "docs" / part).glob("*.md"))]
    assert names == [*inside, "findings"]
    assert len({*names}) == len(names) and "bugs                         Bugs " in "\n".join(lines)
    assert last == f"They are in {ROOT / 'docs'}."


@pytest.mark.parametrize("name", ["bugs#races", "bugs.md#races", "docs/why/bugs.md#races"])
def test_a_section_is_printed_with_its_position(name, capsys):
    assert command.run([name]) == 0
    position, empty, heading, *_, last = capsys.readouterr().out.splitlines()
    file, _, line = position.rpartition(":")
    lines = BUGS.read_text().splitlines()
    assert (file, empty, heading, lines[int(line) - 1]) == (str(BUGS), "", "## Races", "## Races")
    assert not last.startswith("## ")


def test_a_document_is_printed_whole(capsys):
    assert command.run(["bugs"]) == 0
    assert capsys.readouterr().out == f"{BUGS}:1\n\n{BUGS.read_text()}"


def test_a_terminal_gets_it_without_markdown_and_no_long_name_is_cut():
    program = """
import sys
sys.stdout.isatty = lambda: True
from flash_attest.command import docs
docs.run(["bugs#masks"])
"""
    environment = {"PAGER": "cat", "COLUMNS": "90", "TERM": "xterm", "PYTHONPATH": str(ROOT)}
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment).stdout
    assert str(BUGS) in printed and "## Masks" not in printed and "…" not in printed, printed


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bug", "no document is called bug; did you mean bugs? (documents: adding-an-implementation, "),
        ("bugs#race", "bugs has no section race; did you mean races? (sections: "),
    ],
)
def test_a_misspelt_name_gets_a_suggestion(name, words, capsys):
    assert words in refused(command.run, name, capsys=capsys)


def test_sections_have_the_anchors_of_github():
    found = documents.sections(TEXT)
    assert [(section.anchor, section.level, section.line) for section in found] == [
        ("one", 1, 1), ("two-code-and-a-link", 2, 5), ("three", 3, 7), ("one-1", 2, 9),
    ]  # fmt: skip
    assert found[1].text == "## Two `code` and [a link](x.md)\na\n### Three\nb\n"
