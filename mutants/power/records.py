"""The record of a matrix, one JSON file: the environment, and the verdict of each item on each bug.

The file is replaced as a whole, so it is complete at any moment of the run.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path

import torch

from flash_attest.emulator.build_cache import key_of
from flash_attest.mutants.mutant import Mutant, edited_source
from flash_attest.properties.machine.gpus import note_on

SAME = ("device", "machine", "versions", "profile", "cases", "seed")  # what runs must share to be one table


class RecordError(ValueError):
    """A file that cannot be used: the message names it and says why."""


@dataclass
class Entry:
    """One planted bug: the verdict of every item that was judged.

    An item is a law's name, or "peer:" and a peer's name. details: item -> the rejected case, or
    the reason of a verdict other than pass. key: identifies the edited source and the law, because
    verdicts of another edit are not kept. elsewhere: why the bug is not judged here, "" if it is.
    searched: the verdict of the law that it names in more cases, if the usual number did not
    suffice.
    """

    law: str
    family: str
    story: str
    key: str
    elsewhere: str = ""
    verdicts: dict[str, str] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)
    searched: str = ""
    seconds: float = 0.0


@dataclass
class Record:
    """environment: SAME and nothing else. entries: by the mutant's name."""

    environment: dict[str, str | int]
    entries: dict[str, Entry] = field(default_factory=dict)

    def save(self, file: Path) -> None:
        """Write the record. The old file stays until the new one is whole."""
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(f".{file.name}.{os.getpid()}")
        beside.write_text(json.dumps(asdict(self), indent=1) + "\n")
        os.replace(beside, file)


def environment(device: str, profile: str, cases: int, seed: int) -> dict[str, str | int]:
    """Return where this run judges, and how."""
    machine = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()} CPU{note_on(device)}"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}"
    return dict(device=device, machine=machine, versions=versions, profile=profile, cases=cases, seed=seed)


def entry_of(mutant: Mutant, elsewhere: str) -> Entry:
    """Return an entry without verdicts."""
    key = key_of(edited_source(mutant), _stable(mutant.declares), mutant.impl, mutant.law)
    return Entry(mutant.law, mutant.family.name, mutant.story, key, elsewhere)


def _stable(declared: object) -> str:
    """Write what a mutant declares as text that is the same in every process."""
    if isinstance(declared, dict):
        return str({name: _stable(declared[name]) for name in sorted(declared)})
    if isinstance(declared, (set, frozenset)):
        return str(sorted(map(_stable, declared)))
    if is_dataclass(declared):
        return _stable({each.name: getattr(declared, each.name) for each in fields(declared)})
    return getattr(declared, "__qualname__", None) or repr(declared)


def read(file: Path) -> Record:
    """Read the record in a file. Raises RecordError if it is none."""
    try:
        content = json.loads(file.read_text())
        entries = {name: Entry(**fields) for name, fields in content["entries"].items()}
        return Record({name: content["environment"][name] for name in SAME}, entries)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise RecordError(f"{file} should be a file that --matrix --json wrote ({what})") from None


def resumed(file: Path, fresh: Record) -> Record:
    """Return the fresh record with what the file, if there is one, has of the same bugs.

    Raises RecordError for the file of another run.
    """
    if not file.exists():
        return fresh
    old = read(file)
    for name in SAME:
        if old.environment[name] != fresh.environment[name]:
            was, now = old.environment[name], fresh.environment[name]
            raise RecordError(f"{file} has {name} {was}, and this run has {now}: name another file, or remove it")
    for name, entry in fresh.entries.items():
        before = old.entries.get(name)
        if before is not None and before.key == entry.key and not entry.elsewhere and not before.elsewhere:
            fresh.entries[name] = before
    for name, entry in old.entries.items():  # of other names on the command line
        fresh.entries.setdefault(name, entry)
    return fresh


def merged(files: list[Path]) -> list[Record]:
    """Return one record for each environment, from files that may be parts of it.

    Raises RecordError if two files disagree.
    """
    records: list[Record] = []
    for file in files:
        new = read(file)
        same = next((r for r in records if r.environment == new.environment), None)
        if same is None:
            records.append(new)
            continue
        for name, entry in new.entries.items():
            known = same.entries.get(name)
            if known is None or (known.elsewhere and not entry.elsewhere):
                same.entries[name] = entry
                continue
            if entry.elsewhere:  # what it was judged with was not installed yet
                continue
            if known.key != entry.key:
                raise RecordError(f"{file} has another edit of {name} than the files before it: judge it again")
            for item in known.verdicts.keys() & entry.verdicts.keys():
                if known.verdicts[item] != entry.verdicts[item]:
                    raise RecordError(f"{file} has another verdict of {item} on {name} than the files before it")
            known.verdicts |= entry.verdicts
            known.details |= entry.details
            known.searched = known.searched or entry.searched
    return sorted(records, key=lambda record: str(record.environment["device"]))
