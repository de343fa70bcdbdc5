"""The matrix as rows: how many laws kill each planted bug, which, and what other suites say.

A record has every verdict of every law, and is large. A table has what the document and the page
show. It is written as JSON with one line for each bug, and read again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from flash_attest.mutants import ALL
from flash_attest.mutants.mutant import CONTRACT
from flash_attest.mutants.power.child import PEER, SEARCH
from flash_attest.mutants.power.matrix import KILLS, killers, missing_items
from flash_attest.mutants.power.records import SAME, Entry, Record, RecordError, merged
from flash_attest.mutants.power.rules import PEERS
from flash_attest.properties.law import laws

FORMAT = "flash-attest power, rows, 1"


@dataclass(frozen=True)
class Row:
    """One planted bug.

    kills: how many laws kill it. laws: their names, those first that kill the fewest bugs of its
    file; possibly not all. searched: the verdict of the law that it names in more cases, "" if it
    was not tried in more. peers: peer -> its verdict. detail: what the first law says, with the
    case. finished: whether every law and every peer has a verdict.
    """

    kills: int = 0
    laws: tuple[str, ...] = ()
    searched: str = ""
    peers: Mapping[str, str] = field(default_factory=dict)
    detail: str = ""
    finished: bool = True

    @property
    def at_once(self) -> bool:
        """Whether a law kills it in the usual number of cases."""
        return self.kills > 0

    @property
    def caught(self) -> bool:
        """Whether a law kills it at all."""
        return self.at_once or self.searched in KILLS

    @property
    def survives(self) -> bool:
        """Whether it has been judged to the end, and no law kills it."""
        return self.finished and not self.caught

    @property
    def rejecting(self) -> list[str]:
        """The peers that reject it."""
        return [peer.name for peer in PEERS if self.peers.get(peer.name) in KILLS]


@dataclass(frozen=True)
class LawCount:
    """A law's counts: the bugs that it kills, and those that no other law kills."""

    kills: int
    alone: int


@dataclass(frozen=True)
class Table:
    """The rows of one environment, by the bug's name.

    laws: law -> what it kills. elsewhere: bug -> why it is not judged here. alarms: peer -> on how
    many implementations it rejects what it rejects without the bug, too.
    """

    environment: Mapping[str, str | int]
    rows: Mapping[str, Row]
    laws: Mapping[str, LawCount]
    elsewhere: Mapping[str, str]
    alarms: Mapping[str, int]

    @property
    def absent(self) -> list[str]:
        """The bugs that this table does not have."""
        return [mutant.name for mutant in ALL if mutant.name not in self.rows and mutant.name not in self.elsewhere]


def table_of(record: Record) -> Table:
    """Return the table of a record."""
    entries = {name: entry for name, entry in sorted(record.entries.items()) if not entry.elsewhere}
    kills = Counter(law for entry in entries.values() for law in killers(entry))
    alone = Counter(law for entry in entries.values() for law in killers(entry) if len(killers(entry)) == 1)
    alarms = Counter(
        peer.name for peer in PEERS for entry in entries.values()
        if "without the bug" in entry.details.get(PEER + peer.name, "")
    )  # fmt: skip
    return Table(
        environment=dict(record.environment),
        rows={name: _row(entry, kills) for name, entry in entries.items()},
        laws={law: LawCount(kills[law], alone[law]) for law in (CONTRACT, *laws())},
        elsewhere={name: entry.elsewhere for name, entry in sorted(record.entries.items()) if entry.elsewhere},
        alarms=dict(alarms),
    )


def _row(entry: Entry, kills: Counter) -> Row:
    killed_by = sorted(killers(entry), key=lambda law: (kills[law], law))
    peers = {peer.name: entry.verdicts.get(PEER + peer.name, "") for peer in PEERS}
    first = killed_by[0] if killed_by else SEARCH
    return Row(len(killed_by), tuple(killed_by), entry.searched, peers, entry.details.get(first, ""),
               finished=not missing_items(entry))  # fmt: skip


def tables_of(files: Iterable[Path]) -> list[Table]:
    """Return one table for each environment. Files are records or rows, which may be parts of one.

    Raises RecordError for a file that is neither, for files that contradict each other, and for a
    bug that is no longer planted.
    """
    records, tables = [], []
    for file in files:
        if (rows := _read_rows(file)) is None:
            records.append(file)
        else:
            tables += rows
    tables = _joined([*tables, *(table_of(record) for record in merged(records))])
    known = {mutant.name for mutant in ALL}
    if gone := sorted({name for table in tables for name in (*table.rows, *table.elsewhere)} - known):
        raise RecordError(f"the files have {', '.join(gone)}, which is no planted bug now: judge again into a new file")
    return sorted(tables, key=lambda table: str(table.environment["device"]))


def _joined(tables: Iterable[Table]) -> list[Table]:
    """Return one table for each environment. Raises RecordError for a bug with rows in two files,
    as nothing says which of them counts.
    """
    joined: list[Table] = []
    for new in tables:
        same = next((table for table in joined if table.environment == new.environment), None)
        if same is None:
            joined.append(new)
            continue
        if twice := sorted(same.rows.keys() & new.rows.keys()):
            machine = same.environment["machine"]
            raise RecordError(f"two files have rows of {twice[0]} on {machine}: name one of them")
        rows = same.rows | new.rows
        elsewhere = same.elsewhere | new.elsewhere
        joined[joined.index(same)] = Table(
            environment=same.environment,
            rows={name: rows[name] for name in sorted(rows)},
            laws={law: _added(same, new, law) for law in (CONTRACT, *laws())},
            elsewhere={name: elsewhere[name] for name in sorted(elsewhere) if name not in rows},
            alarms=dict(Counter(same.alarms) + Counter(new.alarms)),
        )
    return joined


def _added(one: Table, other: Table, law: str) -> LawCount:
    a, b = (table.laws.get(law, LawCount(0, 0)) for table in (one, other))
    return LawCount(a.kills + b.kills, a.alone + b.alone)


# --- JSON -----------------------------------------------------------------------------------------


def written(tables: Iterable[Table]) -> str:
    """Return the tables as JSON, with one line for each bug."""
    texts = ",\n".join(map(_written, tables))
    return f'{{"format": {json.dumps(FORMAT)},\n"tables": [\n{texts}]}}\n'


def _written(table: Table) -> str:
    parts = {
        "environment": json.dumps(table.environment),
        "rows": _lines({name: _short(row) for name, row in table.rows.items()}),
        "laws": _lines({law: [count.kills, count.alone] for law, count in table.laws.items()}),
        "elsewhere": _lines(table.elsewhere),
        "alarms": json.dumps(table.alarms),
    }
    return "{" + ",\n".join(f'"{name}": {text}' for name, text in parts.items()) + "}"


def _lines(values: Mapping[str, object]) -> str:
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in values.items())
    return "{\n" + lines + "}"


def _short(row: Row) -> dict:
    """Return the fields that differ from those of an empty row."""
    return {name: value for name, value in asdict(row).items() if value != getattr(Row(), name)}


def _read_rows(file: Path) -> list[Table] | None:
    """Read the tables in a file. Returns None if it is a record, or anything else."""
    try:
        content = json.loads(file.read_text())
        if content["format"] != FORMAT:
            return None
        return [_read_table(table) for table in content["tables"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _read_table(table: Mapping) -> Table:
    return Table(
        environment={name: table["environment"][name] for name in SAME},
        rows={name: Row(**row | {"laws": tuple(row.get("laws", ()))}) for name, row in table["rows"].items()},
        laws={law: LawCount(*counts) for law, counts in table["laws"].items()},
        elsewhere=dict(table["elsewhere"]),
        alarms=dict(table["alarms"]),
    )
