"""The command flash-attest power --races: which layers find the planted races, under which
perturbations, and after how many repeats.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from rich.console import Console

from flash_attest.arguments import INTERRUPTED
from flash_attest.mutants import ALL, edited_source
from flash_attest.mutants.power.command import OptionError, device_of, entry_for, part, to_its_end
from flash_attest.mutants.power.records import Record, RecordError, environment, merged, resumed
from flash_attest.mutants.races.cells import LAYERS, cells
from flash_attest.mutants.races.kinds import planted
from flash_attest.mutants.races.matrix import How, Races, missing_cells
from flash_attest.mutants.races.page import summary, unfound, with_matrix, wrongly_found
from flash_attest.properties.machine.gpus import cores

REPEATS = {"cpu": 10, "cuda": 100}


def run(options: argparse.Namespace, console: Console) -> int:
    """Judge, or with --from write earlier results. Returns the exit status.

    0: a default layer finds every race. 1: some race is not found, something is found where nothing
    is planted, or something is not judged. 2: nothing can be judged here. Raises MutantError for a
    mutant that no longer applies, before anything is judged; RecordError, OptionError.
    """
    say = partial(console.print, highlight=False, markup=False)
    if options.write and options.records:
        records = merged(options.records)
        _write(options.write, records)
        for record in records:
            say(summary(record))
        return 0
    if options.write and not options.json:
        raise OptionError(
            f"--write {options.write}: name a file for the results in --json, or of earlier ones in --from"
        )

    # List the cells to judge. Every edit must apply before anything is judged.
    device = device_of(options)
    wanted = _wanted(options.layers, device)
    repeats = options.repeats or REPEATS[device]
    fresh = Record(environment(device, "races", repeats, options.seed))
    for name in _names(options):
        mutant, _ = planted(ALL)[name]
        edited_source(mutant)
        fresh.entries[name] = entry_for(mutant, device)

    # Judge, continuing earlier results if there are some.
    names = list(fresh.entries)
    record = resumed(options.json, fresh) if options.json else fresh
    how = How(device, repeats, options.seed, tuple(wanted))
    matrix = Races(record, names, how, options.workers or cores(), options.law_timeout, options.json, say)
    say(f"{matrix.total} of {len(names)} planted races, and kernels without an edit, to judge on {device}")
    if not to_its_end(matrix, options, say):
        return INTERRUPTED
    if options.write:
        _write(options.write, merged([options.json]))
    return _concluded(Record(record.environment, {name: record.entries[name] for name in names}), wanted, say)


def _wanted(text: str | None, device: str) -> list:
    """Return the cells of the layers that --layers names."""
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    if unknown := [name for name in names if name not in LAYERS]:
        raise OptionError(f"--layers {', '.join(unknown)}: not a layer; the layers are {', '.join(LAYERS)}")
    chosen = [cell for cell in cells(device) if not names or cell.layer in names]
    if not chosen:
        raise OptionError(
            f"--layers {text}: not on {device}; there are {', '.join({c.layer: 0 for c in cells(device)})}"
        )
    return chosen


def _names(options: argparse.Namespace) -> list[str]:
    known = planted(ALL)
    chosen = [name for name in known if not options.names or any(part in name for part in options.names)]
    if missing := [part for part in options.names if not any(part in name for name in known)]:
        raise OptionError(
            f"no planted race is called {' or '.join(missing)}; --races without a name judges all {len(known)}"
        )
    return part(chosen, options.shard)


def _concluded(record: Record, wanted: list, say) -> int:
    say(summary(record))
    here = {name: entry for name, entry in record.entries.items() if not entry.elsewhere}
    bad = [f"found by no layer that is on by default: {name}" for name in unfound(record)]
    bad += [f"found where nothing is planted: {line}" for line in wrongly_found(record)]
    for line in bad:
        say(line)
    if not here:
        return 2
    return 1 if bad or any(missing_cells(tuple(wanted), entry) for entry in here.values()) else 0


def _write(to: Path, records: list[Record]) -> None:
    try:
        text = to.read_text()
    except OSError as error:
        raise RecordError(f"--write {to}: should be a page with markers for the matrix ({error})") from None
    to.write_text(with_matrix(text, records))
