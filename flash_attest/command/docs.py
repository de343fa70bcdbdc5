"""flash-attest docs: the documents, where the package is installed and no checkout is at hand."""

from __future__ import annotations

import os
import sys

from flash_attest.arguments import Parser
from flash_attest.did_you_mean import did_you_mean
from flash_attest.documents import FOLDER, documents, sections, title_of

NAME = "docs"
SUMMARY = "the documents: how to use it, and why it is as it is"
EPILOG = """\
  flash-attest docs              lists the documents
  flash-attest docs bugs         shows one
  flash-attest docs bugs#races   shows a section of it; a name that is wrong lists those that there are

A message may name one as docs/why/bugs.md#races, which works too.
Exit status: 0, or 2 if there is no such document or section.
"""
WIDE = 100  # columns: prose is hard to read in longer lines


def run(arguments: list[str]) -> int:
    """List the documents, or show one. Returns the exit status."""
    parser = Parser(f"flash-attest {NAME}", "Shows a document.", EPILOG)
    parser.add_argument("name", nargs="?", metavar="NAME[#SECTION]", help="which; none lists them")
    options = parser.parse_args(arguments)
    files = documents()
    if options.name is None:
        print(*(f"{name:28} {title_of(path)}" for name, path in files.items()), sep="\n")
        print(f"They are in {FOLDER}.")
        return 0
    name, _, anchor = options.name.partition("#")
    name = name.rpartition("/")[2].removesuffix(".md")
    if name not in files:
        parser.error(f"no document is called {name}{did_you_mean(name, files)} (documents: {', '.join(files)})")
    inside = {section.anchor: section for section in sections(files[name].read_text(encoding="utf-8"))}
    if anchor and anchor not in inside:
        hint = did_you_mean(anchor, inside)
        parser.error(f"{name} has no section {anchor}{hint} (sections: {', '.join(inside)})")
    section = inside[anchor or next(iter(inside))]
    _show(f"{files[name]}:{section.line}", section.text)
    return 0


def _show(position: str, text: str) -> None:
    """Show a text in a pager on a terminal. Elsewhere print it as it is, for a program."""
    if not sys.stdout.isatty():
        print(position, "", text, sep="\n", end="")
        return
    from rich.console import Console
    from rich.markdown import Markdown, TableElement

    class Table(TableElement):
        """A table whose cells keep all of a long word, such as the name of a law."""

        def __rich_console__(self, console, options):
            for table in super().__rich_console__(console, options):
                for column in table.columns:
                    column.overflow = "fold"
                yield table

    class Document(Markdown):
        elements = Markdown.elements | {"table_open": Table}

    os.environ.setdefault("LESS", "-FRX")  # colours; and no pager for what fits the screen
    console = Console()
    with console.pager(styles=True):
        console.print(position, style="dim", highlight=False, soft_wrap=True)
        console.print(Document(text), width=min(WIDE, console.width))
