"""flash-attest laws: lists the laws, each with a planted bug that it catches."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from flash_attest.arguments import Parser
from flash_attest.command import chapters
from flash_attest.places import document

if TYPE_CHECKING:
    from flash_attest.properties.law import Law

NAME = "laws"
SUMMARY = "every law: its rule, what it needs, a planted bug that it catches"
EPILOG = """\
  flash-attest laws                                 a line for each law
  flash-attest laws query_sees_exactly_its_prefix   the whole rule, what it needs, and all bugs planted for it
  flash-attest laws --chapter causal --json         for a program

Exit status: 0, or 2 if there is no such law.
"""
WIDE = 240  # width in columns if there is no terminal


def run(arguments: list[str]) -> int:
    """Print the laws. Returns the exit status."""
    parser = Parser(f"flash-attest {NAME}", "The laws of attention that implementations are judged by.", EPILOG)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="print everything about these laws; test_ may be left out"
    )
    parser.add_argument(
        "--chapter",
        metavar="NAME",
        help="print the laws of this chapter, for example causal, beside those that are named",
    )
    parser.add_argument("--json", action="store_true", help="print JSON: a list of objects")
    options = parser.parse_args(arguments)
    try:
        wanted = {chapters.place_of(name)[1] for name in options.names}
        chapter = chapters.chapter_of(options.chapter) if options.chapter else None
    except chapters.UnknownName as error:
        parser.error(str(error))
    import flash_attest.required  # noqa: F401

    listed = [
        law
        for law in described()
        if law["name"] in wanted or chapter == f"test_{law['chapter']}" or not (wanted or chapter)
    ]
    if options.json:
        print(json.dumps(listed, indent=1))
    elif wanted:
        print("\n\n".join(map(whole, listed)))
    else:
        _print_table(listed)
    return 0


def described() -> list[dict]:
    """Return all laws, and the contract check that precedes them, as dicts for JSON."""
    from flash_attest.mutants import ALL, CONTRACT
    from flash_attest.properties import test_contract
    from flash_attest.properties.law import Law, laws

    contract = Law(test_contract.test_contract_is_kept, None, bug="")
    planted: dict[str, list] = {}
    for mutant in ALL:
        planted.setdefault(mutant.law, []).append({"name": mutant.name, "story": mutant.story, "device": mutant.device})
    return [_described(law, planted.get(name, [])) for name, law in {CONTRACT: contract, **laws()}.items()]


def _described(law: Law, planted: list[dict]) -> dict:
    return {
        "name": law.name,
        "chapter": law.chapter.removeprefix(chapters.PREFIX),
        "rule": law.rule,
        "needs": list(law.needs),
        "device": law.device,
        "bugs": document(f"why/bugs.md#{law.bug}") if law.bug else None,
        "planted": planted,
    }


def needs_of(law: dict) -> str:
    """Return, in words, what an implementation must declare for a law to apply, and which device
    the law needs.
    """
    return ", ".join([*law["needs"], *([f"{law['device']} only"] if law["device"] else [])])


def first_sentence(rule: str) -> str:
    """Return the first sentence of a rule, or its first paragraph if that ends earlier."""
    text = " ".join(rule.split("\n\n")[0].split())
    head, end, _ = text.partition(". ")
    return head + end.strip()


def whole(law: dict) -> str:
    """Return everything about one law as text."""
    lines = [
        f"{law['name'].removeprefix(chapters.PREFIX)}   ({law['chapter']})",
        "",
        *(f"  {line}".rstrip() for line in law["rule"].splitlines()),
        "",
    ]
    lines += [f"needs     {needs_of(law) or 'nothing: every implementation is judged by it'}"]
    if law["bugs"]:
        lines += [f"real bugs {law['bugs']}"]
    lines += [f"planted   {len(law['planted'])} bugs that it must catch:", ""]
    lines += [f"  {bug['name']}\n      {bug['story']}" for bug in law["planted"]]
    return "\n".join(lines)


def _print_table(listed: list[dict]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console() if sys.stdout.isatty() else Console(width=WIDE)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("law", "chapter", "rule", "needs", "a planted bug"):
        table.add_column(heading, overflow="fold")
    for law in listed:
        bug = law["planted"][0]["name"] if law["planted"] else ""
        name = law["name"].removeprefix(chapters.PREFIX)
        table.add_row(name, law["chapter"], first_sentence(law["rule"]), needs_of(law), bug)
    console.print(table, markup=False)
    console.print(f"{len(listed)} laws; flash-attest laws NAME has the whole rule", highlight=False)
