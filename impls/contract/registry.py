"""Chooses implementations by name (--impl), among plug-ins and those in impls/."""

from __future__ import annotations

import importlib
import shlex
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from flash_attest.did_you_mean import did_you_mean
from flash_attest.impls.contract.entry import HERE, Entry, RegistryError, Unloadable
from flash_attest.impls.contract.loading import declared_in, import_problem
from flash_attest.impls.contract.record import Implementation

NOT_IMPLEMENTATIONS = {"__init__", "contract", "diagonals", "operators", "torch_refusals"}


def ours(wanted: Collection[str] | None = None) -> list[Entry]:
    """Return the entries of every module and package in impls/ that has IMPL or IMPLS.

    wanted: names of implementations. A module is imported only if one of them begins with the
    module's name, because an import may be slow: Numba takes a second.
    """
    paths = [path for path in sorted(HERE.iterdir()) if path.suffix == ".py" or (path / "__init__.py").exists()]
    return [
        entry
        for path in paths
        if path.stem not in NOT_IMPLEMENTATIONS
        and (wanted is None or any(name.startswith(path.stem) for name in wanted))
        for entry in _of_module(path)
    ]


def _of_module(path: Path) -> list[Entry]:
    try:
        module = importlib.import_module(f"flash_attest.impls.{path.stem}")
    except Exception as error:
        return [Entry(Unloadable(path.stem, import_problem(path, error)), str(path))]
    impls = declared_in(module, None, path)
    if other := [impl.name for impl in impls if not impl.name.startswith(path.stem)]:
        problem = f"{path}: the names {', '.join(other)} should begin with {path.stem}, by which --impl finds them"
        return [Entry(Unloadable(path.stem, problem), str(path))]
    return [Entry(impl, str(path)) for impl in impls]


def on_device(entries: Iterable[Entry], device: str) -> list[Entry]:
    """Return the entries with their contracts on "cpu" or "cuda"."""
    return [
        replace(entry, impl=entry.impl.on(device)) if isinstance(entry.impl, Implementation) else entry
        for entry in entries
    ]


def choose(plugins: list[Entry], names: str | None, alone: bool) -> list[Entry]:
    """Return the plug-ins and our implementations that --impl names.

    names: None if --impl is not given. Then all are returned, or only the plug-ins if `alone`.

    Raises RegistryError as `select` does.
    """
    if names is None:
        return select(plugins if alone else [*plugins, *ours()], None)
    entries = [*plugins, *ours(wanted := named(names))]
    known = {entry.name for entry in entries}
    if not wanted or not {*wanted} <= known:
        if wanted and (unloaded := [entry for entry in plugins if isinstance(entry.impl, Unloadable)]):
            # A name that is not known may be in a file that cannot be loaded.
            absent = ", ".join(name for name in wanted if name not in known)
            unloaded = [replace(each, impl=each.impl.lacking(absent)) for each in unloaded]
            chosen = select(entries, ",".join(name for name in wanted if name in known)) if {*wanted} & known else []
            return sorted({entry.name: entry for entry in [*chosen, *unloaded]}.values(), key=lambda entry: entry.name)
        entries = [*plugins, *ours()]  # the message lists all known names
    return select(entries, names)


def named(names: str) -> list[str]:
    """Split "a,b" into its names."""
    return [name.strip() for name in names.split(",") if name.strip()]


def select(entries: list[Entry], names: str | None) -> list[Entry]:
    """Return all entries, or those named in "a,b". They are sorted by name, alike in all workers.

    Raises RegistryError for an unknown name (the message lists the known ones), or if two entries
    share a name (it lists both files).
    """
    by_name: dict[str, Entry] = {}
    for entry in entries:
        if entry.name in by_name:
            files = " and in ".join(dict.fromkeys((by_name[entry.name].file, entry.file)))
            raise RegistryError(f"two implementations are named {entry.name!r}: in {files}: rename one")
        by_name[entry.name] = entry
    wanted = list(by_name) if names is None else named(names)
    unknown = [name for name in wanted if name not in by_name]
    if unknown or not wanted:
        what = f"unknown {', '.join(map(repr, unknown))}" if unknown else "no name given"
        hint = did_you_mean(unknown, by_name)
        raise RegistryError(f"--impl {shlex.quote(names or '')}: {what}; {_known(by_name.values())}{hint}")
    return [by_name[name] for name in sorted(set(wanted))]


def _known(entries: Iterable[Entry]) -> str:
    """Return the names of all entries for a message, those of each file before ours."""
    by_file: dict[str, list[str]] = {}
    for entry in sorted(entries, key=lambda entry: entry.name):
        by_file.setdefault(entry.file if entry.plug_in else "", []).append(entry.name)
    own = ", ".join(by_file.pop("", []))
    if not by_file:
        return f"known are {own}"
    theirs = "; ".join(f"{file} has {', '.join(names)}" for file, names in by_file.items())
    return f"{theirs}; ours are {own}" if own else theirs
