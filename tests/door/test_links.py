"""Links of every Markdown file lead to a file or a heading that exists, as GitHub resolves them.

Links to other hosts are not fetched. tox -e docs checks the links of the site.
"""

import re
import subprocess
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from flash_attest.documents import documents, sections
from tests.places import ROOT

TRACKED = subprocess.run(
    ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
)
PAGES = sorted(ROOT / name for name in TRACKED.stdout.split("\0") if name.endswith(".md"))
INDEX = ROOT / "docs" / "index.md"
NAMED = re.compile(r"\bdocs/\w+/[\w-]+\.md(?:#[\w-]+)?")  # in a message or a docstring


def links(text: str) -> list[str]:
    """Return where the links and pictures of a Markdown text lead."""
    tokens = [
        child for token in MarkdownIt("gfm-like", {"linkify": False}).parse(text) for child in token.children or ()
    ]
    return [
        str(token.attrs.get("href") or token.attrs.get("src")) for token in tokens if {"href", "src"} & {*token.attrs}
    ]


def problem(page: Path, link: str) -> str | None:
    """Return what is wrong with a link of a page."""
    file, _, anchor = link.partition("#")
    target = (page.parent / file).resolve() if file else page
    if not (target.is_relative_to(ROOT) and target.exists()):
        return f"{link}: there is no such file"
    if anchor and anchor not in {section.anchor for section in sections(target.read_text())}:
        return f"{link}: there is no such heading"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    inside = [link for link in links(page.read_text()) if not re.match(r"\w+:", link)]
    assert [found for link in inside if (found := problem(page, link))] == []


def test_documents_that_the_sources_name_exist():
    rooms = {path.resolve() for path in (ROOT / "flash_attest").iterdir() if path.is_symlink() and path.is_dir()}
    sources = [file for room in [*rooms, ROOT / "flash_attest"] for file in room.rglob("*.py")]
    named = {(name, file) for file in sources for name in NAMED.findall(file.read_text())}
    assert len(named) > 20
    assert [f"{file}: {found}" for name, file in named if (found := problem(ROOT / "README.md", name))] == []


def test_the_index_lists_every_document():
    listed = {(INDEX.parent / link).resolve() for link in links(INDEX.read_text())}
    assert {*documents().values(), *INDEX.parent.glob("measured/*.md")} <= listed


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ("docs/why/bugs.md#races", None),
        ("docs/why", None),
        ("docs/why/bug.md", "no such file"),
        ("../elsewhere.md", "no such file"),
        ("docs/why/bugs.md#race", "no such heading"),
    ],
)
def test_a_wrong_link_is_found(link, words):
    (found,) = links(f"a [link]({link}) in text, and one in code: `[not](nowhere.md)`")
    assert found == link
    assert (words or "None") in str(problem(ROOT / "README.md", link))
