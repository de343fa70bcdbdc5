"""Makes the entries of --impl-from with --untrusted: only a kernel process imports their files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flash_attest.impls.contract.entry import Entry, RegistryError, Unloadable
from flash_attest.impls.contract.loading import as_name, file_of, invalid, option_of
from flash_attest.impls.contract.record import Absent, ContractError, Implementation
from flash_attest.impls.contract.registry import named, ours
from flash_attest.runner.untrusted import records, sandbox
from flash_attest.runner.untrusted.process import KernelEnded, KernelProcess
from flash_attest.runner.untrusted.remote import Remote

IMPORT_LIMIT = 60.0  # seconds to start a kernel process and import the file, if --case-timeout is not longer
OPTION = "--untrusted"
MOST_LINES, WIDEST = 10, 300  # of what an import changed, lines and characters of each


def check_options(files: Sequence[str], names: str | None) -> None:
    """Raise RegistryError if --untrusted has no file to judge, or is used with one of our
    implementations.
    """
    if not files:
        raise RegistryError("--untrusted: judges what --impl-from names; add --impl-from FILE.py")
    chosen = named(names or "")
    known = {entry.name for entry in ours(chosen)}
    if mixed := [name for name in chosen if name in known]:
        raise RegistryError(
            f"--untrusted --impl {names}: {', '.join(mixed)} is one of ours, which are judged without --untrusted"
        )
    try:
        sandbox.chosen()
    except sandbox.NotHeld as error:
        raise RegistryError(f"{OPTION}: {error}") from None


def from_file(argument: str, limit: float, reports: Sequence[str] = ()) -> list[Entry]:
    """Import a file in a kernel process, with the same result as impls.registry.from_file.

    limit: seconds. reports: folders that the kernel process must not read.
    """
    process = KernelProcess(argument, reports)
    file, option = file_of(argument)[0], f"{OPTION} {option_of(argument)}"
    try:
        answer = process.declare(max(limit, IMPORT_LIMIT))
    except KernelEnded as ended:
        problem = "\n".join([f"{file}: importing it ends the kernel process: {ended.words}", *ended.printed])
        return [Entry(Unloadable(as_name(file.stem), problem), str(file), option)]
    finally:
        process.end()  # the judging process starts another one
    if isinstance(refused := answer.get("refused"), str):
        raise RegistryError(refused)
    records_sent = answer.get("declared")
    if not isinstance(records_sent, list) or not records_sent:
        return [Entry(Unloadable(as_name(file.stem), f"{file}: it declares no implementation"), str(file), option)]
    did = {name: _lines(answer.get(name)) for name in ("broken", "remarks")}
    return [
        Entry(_entry(process, number, record, file), str(file), option, **did)
        for number, record in enumerate(records_sent)
    ]


def held() -> str:
    """Return what holds the kernel process, for results.json: "bubblewrap and seccomp"."""
    return sandbox.in_words(sandbox.chosen())


def header() -> str:
    """Return the line that a run prints at its start."""
    line = f"flash-attest: untrusted: files are imported, and called, in a kernel process, held by {held()}"
    return line if sandbox.chosen() != sandbox.NONE else f"{line}: it can do whatever you can do"


def _lines(sent: object) -> tuple[str, ...]:
    """Return what the kernel process says that the import changed. It may say anything."""
    lines = [line[:WIDEST] for line in sent[:MOST_LINES] if isinstance(line, str)] if isinstance(sent, list) else []
    return tuple(lines)


def _entry(process: KernelProcess, number: int, record: object, file: Path) -> Implementation | Absent | Unloadable:
    remote = Remote(process, number)
    try:
        return records.declared(record, remote.forward, remote.backward, remote.accepts)
    except ContractError as error:
        problem = invalid(file, error)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"{file}: the declaration cannot be read ({type(error).__name__}: {error})"
    return Unloadable(as_name(file.stem), problem)
