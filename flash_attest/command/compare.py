"""flash-attest compare: what has changed between two reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from flash_attest.arguments import Parser

if TYPE_CHECKING:
    from flash_attest.runner.compare import Change, Comparison

NAME = "compare"
SUMMARY = "what has changed between two reports: verdicts, laws, z"
EPILOG = """\
  flash-attest compare old-report new-report                       two folders of --report, or results.json of each
  flash-attest compare old-report new-report --page changes.html   the same as a page

Verdicts are ordered: pass, then refused and not here, undecided, known failure, fail. A law got worse if its verdict went
down in this order; if it held and has no verdict in B; or if only B has it, and it fails. An implementation that only one
report has does not count, nor does a z that moved.

Exit status: 0 nothing got worse, 1 something did, 2 the command is wrong, a report cannot be read, or they share no law.
"""
WORSE = 1
LISTED = 40  # lines of a heading; the page has all


def run(arguments: list[str]) -> int:
    """Compare two reports. Returns the exit status."""
    parser = Parser(f"flash-attest {NAME}", "Says what has changed from report A to report B.", EPILOG)
    parser.add_argument("before", type=Path, metavar="A", help="the earlier report: a folder, or its results.json")
    parser.add_argument("after", type=Path, metavar="B", help="the later one")
    parser.add_argument("--page", type=Path, metavar="FILE", help="also write a page, as in changes.html")
    options = parser.parse_args(arguments)
    if options.before.resolve() == options.after.resolve():
        parser.error(f"{options.after}: is A, too; should be another report")
    import flash_attest.required  # noqa: F401
    from flash_attest.runner.compare import compare, report
    from flash_attest.runner.plugin.saved import NoReport

    try:
        records = [report(path) for path in (options.before, options.after)]
    except NoReport as error:
        parser.error(str(error))
    found = compare(*records)
    if not found.common:
        parser.error(
            f"nothing to compare: {options.before} and {options.after} have no law of an implementation in common"
        )
    _print(found, options, records)
    if options.page:
        from flash_attest.runner.page.compare import compare_page

        names = [str(options.before), str(options.after)]
        try:
            options.page.write_text(compare_page(found, names, records), encoding="utf-8")
        except OSError as error:
            parser.error(f"--page {options.page}: cannot be written ({error.strerror})")
        print(f"page: {options.page}")
    return WORSE if found.worse else 0


def _print(found: Comparison, options, records: list[dict]) -> None:
    """Print a section for each kind of change, and a summary as the last line."""
    from flash_attest.properties.judging.plain_text import plain
    from flash_attest.properties.judging.verdict import law_name
    from flash_attest.runner.compare import MOVED
    from flash_attest.runner.page.words import when, z

    lines = []
    for letter, path, record in zip("AB", (options.before, options.after), records, strict=True):
        started = when(record["environment"].get("started", ""))
        lines.append(f"{letter}  {path}: {len(record['results'])} verdicts, started {started}{_unfinished(record)}")
    lines += [f"   {name} differs: {before} in A, {after} in B" for name, before, after in found.differs]
    for heading, changes in (("worse", found.worse), ("better", found.better), ("changed", found.changed),
                             ("no verdict in B", found.gone), ("no verdict in A", found.new)):  # fmt: skip
        lines += _section(heading, [_line(change) for change in changes])
    for letter, impls in (("A", found.only_before), ("B", found.only_after)):
        lines += _section(f"implementations only in {letter}", [f"{name}: {n} laws" for name, n in impls.items()])
    moved = [f"{m.impl}  {law_name(m.law)}: {m.tensor} {z(m.before)} -> {z(m.after)}" for m in found.moved]
    lines += [*_section(MOVED, moved), "", found.verdict]
    print(plain("\n".join(lines)))


def _unfinished(record: dict) -> str:
    """Say that a run did not judge all of its laws; "" if it did."""
    environment = record["environment"]
    if environment.get("complete", True):
        return ""
    return f", {environment['state']}: {environment['decided']} of {environment['planned']} decided"


def _section(heading: str, lines: list[str]) -> list[str]:
    if not lines:
        return []
    more = [f"  and {len(lines) - LISTED} more; --page has all"] if len(lines) > LISTED else []
    return ["", f"{heading} ({len(lines)})", *(f"  {line}" for line in lines[:LISTED]), *more]


def _line(change: Change) -> str:
    from flash_attest.properties.judging.verdict import law_name
    from flash_attest.runner.page.words import VERDICTS

    was, now = (VERDICTS[name].word if name else "no verdict" for name in (change.before, change.after))
    return f"{change.impl}  {law_name(change.law)}: {was} -> {now}" + (f": {change.reason}" if change.reason else "")
