"""The implementations and cases that the command line asks for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from flash_attest.bench.cells import Grid, cases, column, grids
from flash_attest.impls import Absent
from flash_attest.impls.contract import registry
from flash_attest.impls.contract.entry import Entry, NotLoaded, RegistryError, Unloadable
from flash_attest.properties.cases.case import DTYPES, Case
from flash_attest.runner.isolation import importing

IMPORT_LIMIT = 120.0  # seconds for the import of a file, as for a call of it in flash-attest check


@dataclass
class Part:
    """A grid with the requested cells. left_out: "name: reason" for each implementation that is not
    timed here.
    """

    entries: list[Entry]
    cases: list[Case]
    left_out: list[str]


def plan(options: argparse.Namespace) -> list[Part]:
    """Return the parts in the order of the tables.

    Raises RegistryError for a name or device that is not available.
    """
    mine = from_files(options.impl_from)
    known = registry.on_device(registry.select(registry.ours() + mine, None), options.device)
    named = (
        None
        if options.impl is None
        else registry.on_device(registry.choose(mine, options.impl, alone=True), options.device)
    )
    for entry in mine if named is None else named:
        check_runs(entry, options.device)
    masks = (False, True) if options.causal == options.full else (options.causal,)
    requests = grids(options.device, options.dtype, options.size, options.headdim, options.seqlen)
    parts = []
    for grid, dtypes, sizes in requests:
        entries, left_out = named, []
        if named is None:
            entries, left_out = _by_default(grid, known, mine, options.device)
        if options.dtype is None and len(requests) > 1:
            # Leave out a column that refuses the dtype, unless the user asked for that dtype: it
            # says nothing.
            entries = [entry for entry in entries if _takes_one_of(entry, dtypes)]
        if entries:
            parts.append(Part(sorted(entries, key=lambda e: column(e.name)), cases(dtypes, sizes, masks), left_out))
    return parts


def _by_default(grid: Grid, known: list[Entry], mine: list[Entry], device: str) -> tuple[list[Entry], list[str]]:
    ours = [entry for entry in known if entry not in mine]
    return grid.entries(ours, device) + mine, grid.left_out(ours, device)


def from_files(arguments: Sequence[str]) -> list[Entry]:
    """Return the entries of --impl-from. A file that would end this process becomes Unloadable."""
    return [entry for argument in arguments for entry in importing.entries_of(argument, IMPORT_LIMIT)]


def check_runs(entry: Entry, device: str) -> None:
    """Raise RegistryError, with the reason, if the entry cannot run on the device, and NotLoaded if
    its file cannot be loaded.
    """
    if isinstance(entry.impl, Unloadable):
        raise NotLoaded(entry.impl.problem)
    if isinstance(entry.impl, Absent):
        raise RegistryError(f"{entry.name}: {entry.impl.reason}")
    if device not in entry.impl.devices:
        runs, lacks = " and ".join(sorted(entry.impl.devices)), entry.impl.unavailable.get(device)
        but = f", but {lacks}" if lacks else ""
        raise RegistryError(f"{entry.name} runs on {runs} only: should run on {device} (--device){but}")


def _takes_one_of(entry: Entry, dtypes: tuple[str, ...]) -> bool:
    return isinstance(entry.impl, Unloadable) or any(DTYPES[dtype] in entry.impl.supports.dtypes for dtype in dtypes)
