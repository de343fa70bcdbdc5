"""The matrix of races in docs/why/races.md: two tables for each device, between two markers."""

from __future__ import annotations

from collections import Counter

from flash_attest.mutants import ALL
from flash_attest.mutants.power.matrix import KILLS
from flash_attest.mutants.power.records import Entry, Record, RecordError
from flash_attest.mutants.races.cells import EVERYTHING, HEADDIM, SANITIZED, SIZES, Cell, cells
from flash_attest.mutants.races.kinds import Kind, planted
from flash_attest.races.perturb import NONE

BEGIN, END = "<!-- the matrix: flash-attest power --races -->", "<!-- the end of the matrix -->"
PLACES = {"cpu": "On a CPU", "cuda": "On a GPU"}


def with_matrix(text: str, records: list[Record]) -> str:
    """Return the page with the tables of these records between the markers. Raises RecordError."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise RecordError(f"--write: the page should have one line {BEGIN} and one line {END}")
    known = planted(ALL)
    if gone := sorted({name for record in records for name in record.entries} - set(known)):
        raise RecordError(
            f"the files have {', '.join(gone)}, which is no planted race now: judge again into a new file"
        )
    before, rest = text.split(BEGIN)
    lines = ["", overall(records), *(line for record in records for line in ["", *_tables(record)]), ""]
    tables = "\n".join(lines if records else [""])
    return f"{before}{BEGIN}\n{tables}\n{END}{rest.split(END)[1]}"


def overall(records: list[Record]) -> str:
    """State how many planted races some layer finds by default on some device, which ones no layer
    finds, and which are not judged.
    """
    caught = {name for record in records for name, entry in _races(record).items() if _by_default(record, entry)}
    missed = {name for record in records for name in unfound(record)} - caught
    words = [f"**{len(caught)} of {len(caught | missed)}** planted races are found by a layer that is on by default."]
    words += [f"By none: {', '.join(sorted(missed))}."] if missed else []
    absent = {name for name, race in planted(ALL).items() if race.kind} - caught - missed
    words += [f"Not judged: {', '.join(sorted(absent))}."] if absent else []
    return " ".join(words + unmeasured(records))


def unmeasured(records: list[Record]) -> list[str]:
    """Return lines such as "Not yet measured on a GPU: streams, ...", by device: the layers and
    perturbations that no record has.
    """
    words = []
    for device, place in PLACES.items():
        judged = {cell for record in records if record.environment["device"] == device for cell in _columns(record)}
        missing = [cell for cell in cells(device) if cell not in judged and cell.perturbation not in (NONE, EVERYTHING)]
        if names := dict.fromkeys(cell.perturbation or cell.layer for cell in missing):
            words.append(f"Not yet measured {place[0].lower()}{place[1:]}: {', '.join(names)}.")
    return words


def summary(record: Record) -> str:
    """Return "On a CPU (...): N of M planted races are found by a layer that is on by default
    there", and the counts by layer.
    """
    e, races, columns = record.environment, _races(record), _columns(record)
    counts = Counter(str(cell) for entry in races.values() for cell in columns if _found(entry, cell))
    caught, unfinished = sum(_by_default(record, entry) for entry in races.values()), len(unfinished_in(record))
    each = ", ".join(f"{cell} {counts[str(cell)]}" for cell in columns)
    elsewhere = sum(bool(entry.elsewhere) for name, entry in record.entries.items() if _kind(name))
    words = (
        f"**{PLACES[str(e['device'])]}** ({e['machine']}, {e['versions']}, at most {e['cases']} repeats, seed {e['seed']}): "
        f"**{caught} of {len(races)}** planted races are found by a layer that is on by default there."
        f" Each layer alone finds: {each}."
    )
    words += f" Not finished: {unfinished}." if unfinished else ""
    return words + (f" Not judged here: {elsewhere}." if elsewhere else "")


def unfound(record: Record) -> list[str]:
    """Return the planted races that no default layer finds, although all default layers judged
    them.
    """
    unfinished = unfinished_in(record)
    return [name for name, entry in _races(record).items() if name not in unfinished and not _by_default(record, entry)]


def unfinished_in(record: Record) -> list[str]:
    """Return the planted races that no default layer has found, and that some default layer has not
    judged.
    """
    asked = [str(cell) for cell in _columns(record) if cell.default]
    open_ = {name for name, entry in _races(record).items() if not set(asked) <= set(entry.verdicts)}
    return [name for name in sorted(open_) if not _by_default(record, record.entries[name])]


def _by_default(record: Record, entry: Entry) -> bool:
    return any(_found(entry, cell) for cell in _columns(record) if cell.default)


def wrongly_found(record: Record) -> list[str]:
    """Return "name, cell: details" for each finding in an implementation without a planted race."""
    return [
        f"{name}, {cell}: {entry.details.get(str(cell), '')}"
        for name, entry in record.entries.items()
        if _kind(name) is None
        for cell in _columns(record)
        if _found(entry, cell)
    ]


def _columns(record: Record) -> list[Cell]:
    """Return the cells that were judged."""
    judged = {item for entry in record.entries.values() for item in entry.verdicts}
    return [cell for cell in cells(str(record.environment["device"])) if str(cell) in judged]


def _kind(name: str) -> Kind | None:
    race = planted(ALL).get(name)
    return race.kind if race else None


def _races(record: Record) -> dict[str, Entry]:
    """Return the planted races that can be judged in this environment, finished or not."""
    return {name: entry for name, entry in record.entries.items() if not entry.elsewhere and _kind(name)}


def _found(entry: Entry, cell: Cell) -> bool:
    return entry.verdicts.get(str(cell)) in KILLS


def _tables(record: Record) -> list[str]:
    """Return the tables of one device: races found by kind, then the layers that find each race."""
    device = str(record.environment["device"])
    columns, (batch, heads, length) = _columns(record), SIZES[device]
    titles = " | ".join(str(cell).replace(EVERYTHING, "**all**") for cell in columns)
    rule = f"|---|{'---|' * len(columns)}"
    lines = [f"### {PLACES[device]}", "", summary(record), ""]
    small = "batch {}, {} heads, length {}".format(*SANITIZED)
    cases = (
        f"batch {batch}, {heads} heads, length {length}, head dim {HEADDIM[device]}; under compute-sanitizer {small}"
    )
    lines += [f"Cases: {cases}.", ""]
    lines += [f"| kind, and how many are found | {titles} |", rule]
    of_kind = {kind: {n: e for n, e in _races(record).items() if _kind(n) is kind} for kind in (*Kind, None)}
    of_kind[None] = {n: e for n, e in record.entries.items() if not e.elsewhere and not _kind(n)}
    for kind, entries in of_kind.items():
        if entries:
            counts = [f"{sum(_found(entry, cell) for entry in entries.values())}" for cell in columns]
            what = f"**{kind.value}**: {kind.words}" if kind else "no edit: whatever is found is a false alarm"
            lines.append(f"| {what} ({len(entries)}) | {' | '.join(counts)} |")
    lines += ["", "| found by, of the layers that are on by default | planted races |", "|---|---|"]
    return lines + [f"| {by} ({len(names)}) | {', '.join(names)} |" for by, names in _by_layers(record).items()]


def _by_layers(record: Record) -> dict[str, list[str]]:
    """Return, for "trace, repeat", the planted races that exactly these layers find.

    The largest group comes first.
    """
    groups: dict[str, list[str]] = {}
    unfinished = unfinished_in(record)
    for name, entry in _races(record).items():
        layers = [cell.layer for cell in _columns(record) if cell.default and _found(entry, cell)]
        groups.setdefault(", ".join(layers) or ("not finished" if name in unfinished else "none"), []).append(name)
    return dict(sorted(groups.items(), key=lambda group: -len(group[1])))
