"""The page of the matrix: which planted bugs the laws catch, and which other suites would.

One file of HTML, in the look of all pages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flash_attest.mutants.judging import EXAMPLES
from flash_attest.mutants.mutant import Mutant
from flash_attest.mutants.power import columns
from flash_attest.mutants.power.matrix import HANG, KILLS
from flash_attest.mutants.power.report import BY_NAME, by_chapter, chapter_of, counted, places, remarks, short
from flash_attest.mutants.power.rules import PEERS
from flash_attest.mutants.power.tables import Row, Table
from flash_attest.properties.judging.verdict import PASS, REFUSED, UNKNOWN, law_name
from flash_attest.runner.page.template import BAD, GOOD, OPEN, render
from flash_attest.runner.page.words import slug

TEMPLATE = Path(__file__).with_name("page.html.j2")
SCRIPT = Path(__file__).with_name("page.js")
SHORT = {"cpu": "CPU", "cuda": "GPU"}
LAWS = "laws"  # the column of the suite's own laws
TITLES = {LAWS: "the laws"} | {peer.name: peer.title for peer in PEERS}
SOFT, HARD = "\u00ad", "\u2011"  # hyphens: where a narrow heading may break, and where not
# Verdict of a suite -> the class of its colour, the sign, the words.
MARKS = {
    PASS: ("elsewhere", "○", "missed"), REFUSED: ("refused", "–", "none of its inputs is supported"),
    UNKNOWN: ("unknown", "?", "not decided"), HANG: ("unknown", "?", "no answer in time"), "": ("refused", "", ""),
    "caught": ("pass", "✓", "caught"), "survives": ("fail", "✗", "survives"), "unfinished": ("unknown", "?", "not finished"),
}  # fmt: skip


@dataclass(frozen=True)
class Share:
    """The bugs of a group that one column of the matrix catches."""

    caught: int
    of: int

    @property
    def percent(self) -> int:
        """The share in per cent."""
        return round(100 * self.caught / self.of)


@dataclass(frozen=True)
class Verdicts:
    """The verdicts on a bug in one environment. words: the laws that catch it, or why none does."""

    mark: str
    words: str
    detail: str
    marks: tuple[str, ...]


@dataclass(frozen=True)
class Bug:
    """A planted bug, with what happened to it in each environment that judged it.

    missed: who misses it somewhere, as the filter names them.
    """

    mutant: Mutant
    verdicts: list[tuple[str, Verdicts]]
    missed: str

    @property
    def anchor(self) -> str:
        """Its id."""
        return slug("bug", self.mutant.name)


def page(tables: list[Table]) -> str:
    """Return the page of these environments."""
    counts = [counted(table) for table in tables]
    survivors = [
        (slug("bug", name), place, name, BY_NAME[name].story)
        for place, table in zip(places(tables), tables, strict=True) for name, row in table.rows.items() if row.survives
    ]  # fmt: skip
    unfinished = sum(each["unfinished"] for each in counts)
    bugs = bugs_of(tables)
    return render(
        TEMPLATE,
        scripts=(SCRIPT,),
        tone=BAD if survivors else OPEN if unfinished or not bugs else GOOD,
        headline=headline(tables),
        tables=tables,
        counts=counts,
        survivors=survivors,
        unfinished=unfinished,
        titles=TITLES,
        heads=[_narrow(title) for title in TITLES.values()],
        places=places(tables),
        commands=[command_of(table) for table in tables],
        matrices=[matrix_of(table) for table in tables],
        pictures=[columns.drawn(table, f"columns.{n}") for n, table in enumerate(tables, 1)],
        chapters=_grouped(bugs),
        families=[(name, name) for name in sorted({bug.mutant.family.name for bug in bugs})],
        total=len(bugs),
        marks=MARKS,
        laws=[(short(law), [table.laws.get(law) for table in tables]) for law in _laws_of(tables)],
        elsewhere=_elsewhere(tables),
        remarks=[remarks(table) for table in tables],
        peers=PEERS,
        examples=EXAMPLES,
    )  # fmt: skip


def _narrow(title: str) -> str:
    """Return a title that breaks between words: FlashAttention, KernelBench 1e-2."""
    return re.sub(r"(?<=[a-z]{3})(?=[A-Z])", SOFT, title.replace("-", HARD))


def headline(tables: Sequence[Table]) -> str:
    """ "342 of 342 planted bugs are caught on a CPU, 204 of 205 on a GPU"."""
    parts = []
    for place, table in zip(places(tables), tables, strict=True):
        caught = sum(row.caught for row in table.rows.values())
        noun = "" if parts else " planted bugs are caught"
        parts.append(f"{caught} of {len(table.rows)}{noun} {_lower(place)}")
    return ", ".join(parts) or "nothing was judged"


def _lower(words: str) -> str:
    return words[:1].lower() + words[1:]


def _device(table: Table) -> str:
    return str(table.environment["device"])


def command_of(table: Table) -> str:
    """Return the command that judged an environment."""
    e = table.environment
    return f"flash-attest power --matrix --device {e['device']} --profile {e['profile']} --seed {e['seed']} --json FILE"


def matrix_of(table: Table) -> dict[str, dict[str, dict[str, Share]]]:
    """Return heading -> group -> column -> how much it catches: by chapter, then by family."""
    families: dict[str, list[Row]] = {}
    for name, row in table.rows.items():
        families.setdefault(BY_NAME[name].family.name, []).append(row)
    groups = {"what it breaks": by_chapter(table.rows), "where it is planted": dict(sorted(families.items()))}
    every = {"": {"all": list(table.rows.values())}} if table.rows else {}
    return {
        heading: {name: _shares(rows) for name, rows in named.items()}
        for heading, named in {**every, **groups}.items()
    }  # fmt: skip


def _shares(rows: list[Row]) -> dict[str, Share]:
    caught = Counter(name for row in rows for name in row.rejecting)
    caught[LAWS] = sum(row.caught for row in rows)
    return {name: Share(caught[name], len(rows)) for name in (LAWS, *(peer.name for peer in PEERS))}


def bugs_of(tables: list[Table]) -> list[Bug]:
    """Return every bug that was judged anywhere, by name."""
    return [_bug(name, tables) for name in sorted({name for table in tables for name in table.rows})]


def _bug(name: str, tables: list[Table]) -> Bug:
    rows = [(table, table.rows[name]) for table in tables if name in table.rows]
    missed = [peer.name for peer in PEERS if any(peer.name not in row.rejecting for _, row in rows)]
    missed += [LAWS] * any(not row.caught for _, row in rows) + ["others"] * any(not row.rejecting for _, row in rows)
    verdicts = [(SHORT[_device(table)], _verdicts(name, row)) for table, row in rows]
    return Bug(BY_NAME[name], verdicts, " ".join(missed))


def _verdicts(name: str, row: Row) -> Verdicts:
    verdicts = [row.peers.get(peer.name, "") for peer in PEERS]
    marks = tuple("caught" if verdict in KILLS else verdict for verdict in verdicts)
    own = law_name(BY_NAME[name].law)
    if row.at_once:
        more = row.kills - len(row.laws)
        mark, words = "caught", ", ".join(map(law_name, row.laws)) + (f", and {more} more" if more else "")
    elif row.caught:
        mark, words = "caught", f"{own}, in up to {EXAMPLES} cases"
    elif row.finished:
        mark, words = "survives", f"{own}: {row.searched} in up to {EXAMPLES} cases"
    else:
        mark, words = "unfinished", "not finished"
    return Verdicts(mark, words, row.detail, marks)


def _grouped(bugs: Iterable[Bug]) -> dict[str, list[Bug]]:
    chapters: dict[str, list[Bug]] = {}
    for bug in bugs:
        chapters.setdefault(chapter_of(bug.mutant), []).append(bug)
    return dict(sorted(chapters.items()))


def _laws_of(tables: list[Table]) -> list[str]:
    return list(dict.fromkeys(law for table in tables for law in table.laws))


def _elsewhere(tables: Sequence[Table]) -> list[tuple[str, str, list[str]]]:
    """(environment, why, bugs) of the bugs that were not judged."""
    groups: dict[tuple[str, str], list[str]] = {}
    for place, table in zip(places(tables), tables, strict=True):
        for name, why in table.elsewhere.items():
            groups.setdefault((place, why), []).append(name)
    return [(place, why, names) for (place, why), names in groups.items()]
