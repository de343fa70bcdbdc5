"""Writes what the matrix found: docs/measured/power.md, and a line on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from flash_attest.mutants import ALL
from flash_attest.mutants.judging import EXAMPLES
from flash_attest.mutants.mutant import CONTRACT, Mutant
from flash_attest.mutants.power.rules import PEERS
from flash_attest.mutants.power.tables import Row, Table
from flash_attest.properties.law import laws

DEVICES = {"cpu": "On a CPU", "cuda": "On a GPU"}
BY_NAME: Mapping[str, Mutant] = {mutant.name: mutant for mutant in ALL}

HEAD = """# Power: which planted bugs are caught, and by what

Written by `flash-attest power --write docs/measured/power.md --rows docs/measured/power.json --from FILE ...`
from what `flash-attest power --matrix --json FILE` found. Do not edit it.

Each planted bug ([mutants/](../../mutants)) is judged by the contract and by every law with few
cases, and by the rules of other suites on the same edited implementation. A law stops at its first
failure. Every bug has a row in [power.json](power.json); to look through them, make a page of it:
`flash-attest power --page power.html --from docs/measured/power.json`.
"""

RULES = """## How the other suites judge

[mutants/power/rules.py](../../mutants/power/rules.py) has a function for each suite. Inputs, shapes
and tolerances are theirs, the code is ours.

- They judge the edited implementation with everything that it supports. The laws judge it with what
  its planted bug declares, which is less for slow kernels, so that few cases suffice. Edited CUDA
  kernels are compiled for small head dims only; larger ones of a suite are halved until they fit.
- Inputs that are not supported are left out. A suite for float16 gets float32 if the implementation
  supports nothing else. A bug that no input of a suite reaches counts as not caught.
- A rejection counts only if the suite accepts the implementation without the bug on the same input.
  Kernels of packed, padded, paged or split tensors raise an error for dense ones, with the bug and
  without it.
- "Emulated" are implementations that are judged on less than a tenth of the cases.
- What these suites test beside attention as a function is not measured: dropout, KV caches, nested
  tensors.

The planted bugs are ours, and most of them were planted because a law should catch them, so the
numbers favour the laws. They show which kinds of bugs a rule cannot see, not how often such bugs
occur. On a CPU the threads of an emulated kernel run one after another, so a missing barrier nearly
always gives wrong values, and every suite sees it. On a GPU the values are mostly right, and only
the law that traces accesses is sure to see it.
"""


def document(tables: list[Table]) -> str:
    """Return the whole of docs/measured/power.md."""
    lines = [HEAD, "## Caught", "", *_caught(tables), ""]
    for place, table in zip(places(tables), tables, strict=True):
        lines += [f"## {place}: {table.environment['machine']}", "", *_of_one(table), ""]
    lines += [RULES, "| suite | inputs, shapes, rule | smaller here |", "|---|---|---|"]
    for n, peer in enumerate(PEERS):
        same = n > 0 and (peer.rule, peer.reduced) == (PEERS[n - 1].rule, PEERS[n - 1].reduced)
        lines.append(f"| {peer.title} | {'the same' if same else peer.rule} | {'the same' if same else peer.reduced} |")
    return "\n".join(lines) + "\n"


def places(tables: Sequence[Table]) -> list[str]:
    """Return the device of each environment, with its Python if several have this device."""
    environments = [table.environment for table in tables]
    devices = Counter(e["device"] for e in environments)
    pythons = (f" ({e['versions'].split(',')[0]})" if devices[e["device"]] > 1 else "" for e in environments)
    return [f"{DEVICES[e['device']]}{python}" for e, python in zip(environments, pythons, strict=True)]


def _caught(tables: list[Table]) -> list[str]:
    """Return a table of how many bugs are caught, with a column for each environment."""

    def row(words: str, *values: object) -> str:
        return f"| {words} | {' | '.join(map(str, values))} |"

    counts = [counted(table) for table in tables]
    lines = [row("", *places(tables)), "|---|" + "---|" * len(tables)]
    lines += [
        row("judged", *(each["judged"] for each in counts)),
        row("**caught by the laws**", *(f"**{each['at once'] + each['later']}**" for each in counts)),
        row("by a law in few cases", *(each["at once"] for each in counts)),
        row(f"only by the law that the bug names, in up to {EXAMPLES} cases", *(each["later"] for each in counts)),
    ]
    lines += [row(f"caught by {peer.title}", *(each[peer.name] for each in counts)) for peer in PEERS]
    lines.append(row("caught by another suite and by no law", *(each["by others only"] for each in counts)))
    return lines


def counted(table: Table) -> Counter:
    """Count the bugs that were judged, and those that the laws and each peer catch."""
    counts: Counter = Counter(judged=len(table.rows))
    for row in table.rows.values():
        counts["at once"] += row.at_once
        counts["later"] += row.caught and not row.at_once
        counts["by others only"] += bool(row.rejecting) and not row.caught
        counts["unfinished"] += not row.finished
        counts.update(row.rejecting)
    return counts


def _all_caught(table: Table) -> str:
    """Say that nothing survives, as far as the laws have judged."""
    unfinished = any(not row.caught for row in table.rows.values())
    return "Every bug that is judged to the end is caught by a law." if unfinished else "Every bug is caught by a law."


def _cases(environment: Mapping[str, Any]) -> str:
    return f"{environment['cases']} case{'s' * (environment['cases'] != 1)}"


def _of_one(table: Table) -> list[str]:
    """Describe one environment: its settings, what no law catches, what each suite catches."""
    e = table.environment
    lines = [f"{e['versions']}; profile {e['profile']}, {_cases(e)} for each law, seed {e['seed']}."]
    lines += [line + "." for line in remarks(table)]
    survivors = [survivor(table, name) for name, row in table.rows.items() if row.survives]
    lines += [
        "",
        "Not caught by a law:" if survivors else _all_caught(table),
        *([""] if survivors else []),
    ]
    lines += [f"- {line}" for line in survivors]
    lines += ["", "Caught, by the chapter of the law that the bug names:", ""]
    lines += [f"| chapter | bugs | laws | {' | '.join(peer.title for peer in PEERS)} |"]
    lines += ["|---|---|---|" + "---|" * len(PEERS)]
    for chapter, rows in by_chapter(table.rows).items():
        caught = [sum(row.caught for row in rows)]
        caught += [sum(peer.name in row.rejecting for row in rows) for peer in PEERS]
        lines.append(f"| {chapter} | {len(rows)} | {' | '.join(map(str, caught))} |")
    return lines


def remarks(table: Table) -> list[str]:
    """Return what a reader of the numbers of an environment has to know, without full stops."""
    lines = [f"Not judged here: {count} ({why})" for why, count in Counter(table.elsewhere.values()).items()]
    if table.absent:
        lines.append(f"Not in the file, so neither judged nor counted: {len(table.absent)}")
    if unfinished := counted(table)["unfinished"]:
        lines.append(f"Not finished: {unfinished} of {len(table.rows)}")
    titles = {peer.name: peer.title for peer in PEERS}
    alarms = ", ".join(f"{titles[name]} {count}" for name, count in table.alarms.items())
    if alarms:
        lines.append(f"Implementations that a suite rejects without the bug, too, which is not counted: {alarms}")
    return lines


def survivor(table: Table, name: str) -> str:
    """Describe a bug that no law catches: its story, its law's verdict, who catches it."""
    row, mutant = table.rows[name], BY_NAME[name]
    suites = ", ".join(peer.title for peer in PEERS if peer.name in row.rejecting) or "none"
    verdict = f"{short(mutant.law)} gives {row.searched} in up to {EXAMPLES} cases"
    return f"{name} ({mutant.story}): {verdict}; other suites: {suites}"


def by_chapter(rows: Mapping[str, Row]) -> dict[str, list[Row]]:
    """Group the rows by the chapter of the law that the bug names."""
    groups: dict[str, list[Row]] = {}
    for name, row in rows.items():
        groups.setdefault(chapter_of(BY_NAME[name]), []).append(row)
    return dict(sorted(groups.items()))


def chapter_of(mutant: Mutant) -> str:
    """Return the chapter of the law that a bug names, as in "causal"."""
    return "contract" if mutant.law == CONTRACT else short(laws()[mutant.law].chapter)


def short(law: str) -> str:
    """Return the name of a law or chapter, as in "repeats_agree"."""
    return law.removeprefix("test_")


def summary(table: Table) -> str:
    """ "On a CPU (...): the laws catch N of M planted bugs ...", with the counts of the peers."""
    e, counts = table.environment, counted(table)
    caught = counts["at once"] + counts["later"]
    peers = ", ".join(f"{peer.title} {counts[peer.name]}" for peer in PEERS)
    return ". ".join([
        f"{DEVICES[e['device']]} ({e['machine']}, {e['versions']}): the laws catch {caught} of {counts['judged']} planted "
        f"bugs, {counts['at once']} of them with {_cases(e)} for each law (profile {e['profile']}, seed "
        f"{e['seed']}), {counts['later']} by the law that they name in up to {EXAMPLES} cases",
        f"Of the same {counts['judged']}: {peers}",
        f"Caught by another suite and by no law: {counts['by others only']}",
        *remarks(table),
    ]) + "."  # fmt: skip
