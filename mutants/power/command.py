"""Does what flash-attest power --matrix, --write, --rows and --page ask for."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from rich.console import Console

from flash_attest.arguments import INTERRUPTED
from flash_attest.emulator.errors import EmulatorError
from flash_attest.mutants.mutant import Mutant
from flash_attest.mutants.power.child import How
from flash_attest.mutants.power.matrix import KILLS, Matrix, killers, missing_items, why_not_here
from flash_attest.mutants.power.records import Entry, Record, RecordError, entry_of, environment, resumed
from flash_attest.mutants.power.report import document, summary
from flash_attest.mutants.power.tables import Table, table_of, tables_of, written
from flash_attest.properties.machine import gpus
from flash_attest.runner.parts import Shard
from flash_attest.runner.profiles import PROFILES


class OptionError(ValueError):
    """Options that cannot be used: the message names the option and its value."""


def part(mutants: list[Mutant], shard: Shard | None) -> list[Mutant]:
    """Return every n-th mutant, from the i-th on, for the shard i/n."""
    return mutants if shard is None else mutants[shard.part - 1 :: shard.of]


def device_of(options: argparse.Namespace) -> str:
    """Return the device that --device names; "cpu" hides GPUs. Raises OptionError."""
    device = options.device if options.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise OptionError("--device cuda: there is no GPU here")
    try:
        gpus.emulate_if_no_gpu(options.device, options.emulated)
    except EmulatorError as error:
        raise OptionError(str(error)) from None
    return device


def to_its_end(matrix: Matrix, options: argparse.Namespace, say: Callable[[str], None]) -> bool:
    """Judge everything that a matrix lacks.

    After Ctrl-C or SIGTERM, say how to go on and return False.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as `timeout` ends a command
    try:
        matrix.run()
    except KeyboardInterrupt:
        again = "the same command goes on" if options.json else "nothing was kept: name a file in --json"
        say(f"stopped: {again}")
        return False
    finally:
        signal.signal(signal.SIGTERM, before)
    return True


def judge(chosen: list[Mutant], options: argparse.Namespace, console: Console) -> int:
    """Judge the chosen mutants. Returns 0 if a law kills each, 1 if not, 2 if none could be judged.

    Raises MutantError for a mutant that no longer applies, before anything is judged; RecordError,
    OptionError.
    """
    say = partial(console.print, highlight=False, markup=False)
    device = device_of(options)
    if (outputs := outputs_of(options)) and not options.json:
        option, file = next(iter(outputs.items()))
        raise OptionError(f"{option} {file}: name a file for the results in --json")
    if options.json in outputs.values():
        raise OptionError(f"--json {options.json}: is named twice, should be a file of its own")
    profile = PROFILES[options.profile]
    cases = options.cases or profile.cases
    how = How(device, cases, profile.repeats_on(device), profile.small, options.seed)
    fresh = Record(environment(device, options.profile, cases, options.seed))
    for mutant in part(chosen, options.shard):
        fresh.entries[mutant.name] = entry_for(mutant, device)
    names = list(fresh.entries)
    record = resumed(options.json, fresh) if options.json else fresh
    matrix = Matrix(record, names, how, options.workers or gpus.cores(), options.law_timeout, options.json, say)
    say(f"{matrix.total} of {len(names)} planted bugs to judge on {device}")
    if not to_its_end(matrix, options, say):
        return INTERRUPTED
    if outputs:
        _save(outputs, tables_of([options.json, *options.records]))
    return _concluded(Record(record.environment, {name: record.entries[name] for name in names}), say)


def _concluded(record: Record, say: Callable[[str], None]) -> int:
    """Print the summary and the survivors. Returns the exit status."""
    say(summary(table_of(record)))
    here = {name: entry for name, entry in record.entries.items() if not entry.elsewhere}
    survivors = [name for name, entry in here.items() if not killers(entry) and entry.searched not in KILLS]
    for name in survivors:
        say(f"survives: {name}")
    if not here:
        return 2
    return 1 if survivors or any(missing_items(entry) for entry in here.values()) else 0


def entry_for(mutant: Mutant, device: str) -> Entry:
    """Return an entry without verdicts. A bug that shows on a GPU only is not judged on a CPU."""
    reason = "shows on a GPU only" if (mutant.device, device) == ("cuda", "cpu") else ""
    empty = entry_of(mutant, reason)
    if not reason:
        empty.elsewhere = why_not_here(replace(mutant, device=device), device)
    return empty


def outputs_of(options: argparse.Namespace) -> dict[str, Path]:
    """Return option -> file, for each option that names a file for the results."""
    named = {"--write": options.write, "--rows": options.rows, "--page": options.page}
    return {option: file for option, file in named.items() if file}


def write(options: argparse.Namespace, console: Console) -> int:
    """Write what was found before, and print a line for each environment. Raises RecordError."""
    outputs = outputs_of(options)
    if not options.records:
        raise RecordError(f"{next(iter(outputs))}: name the JSON files in --from")
    tables = tables_of(options.records)
    _save(outputs, tables)
    for table in tables:
        console.print(summary(table), highlight=False, markup=False)
    return 0


def _save(outputs: dict[str, Path], tables: list[Table]) -> None:
    from flash_attest.mutants.power.page import page  # imports Jinja, which nothing else here needs

    for option, form in ("--write", document), ("--rows", written), ("--page", page):
        if to := outputs.get(option):
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_text(form(tables), encoding="utf-8")
