"""The command flash-attest sweep: one session of a sweep, and its report."""

from __future__ import annotations

import argparse
import secrets
import time
import uuid
from contextlib import closing

import torch
from filelock import FileLock, Timeout
from rich.console import Console
from rich.markup import escape

from flash_attest.arguments import INTERRUPTED, Parser, choose_emulated
from flash_attest.impls.contract.entry import Entry, NotLoaded, RegistryError
from flash_attest.races import sanitizer
from flash_attest.runner.compiled_modules import keep_modules_compiled
from flash_attest.runner.parts import Shard
from flash_attest.runner.plugin.environment import environment
from flash_attest.runner.profiles import PROFILES
from flash_attest.sweep import crew, plan, report
from flash_attest.sweep.machine import MachineError, facts, places
from flash_attest.sweep.progress import Progress
from flash_attest.sweep.store import Store, StoreError

STATUS = {crew.COMPLETE: report.GREEN, crew.INTERRUPTED: INTERRUPTED, crew.STOPPED: report.NO_DISK}


def sweep(parser: Parser, options: argparse.Namespace, command: str, console: Console | None = None) -> int:
    """Sweep, and write the report. Returns the exit status (options.EPILOG).

    command: the command line that the report shows.
    """
    keep_modules_compiled()  # for the workers
    console = console or report.console()
    if options.device == "auto":
        options.device = "cuda" if torch.cuda.is_available() else "cpu"
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch sees no CUDA device here")
    choose_emulated(parser, options)
    lock = FileLock(f"{options.db}.lock", timeout=0)
    try:
        options.db.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        parser.error(f"--db {options.db}: in use by another sweep: name another file")
    except OSError as error:
        parser.error(f"--db {options.db}: cannot be written to ({error.strerror})")
    try:
        return _with_lock(parser, options, console, command)
    finally:
        lock.release()


def _with_lock(parser, options, console: Console, command: str) -> int:
    """Sweep and write the report, while holding the lock of the file. Returns the exit status.

    Errors of the command are found before anything is written.
    """
    try:
        store = _opened(options)
        about = _implementations_and_machine(options) if options.seconds else None
        if store is None:
            seed = options.seed if options.seed is not None else secrets.randbelow(2**32)
            store = Store.made(options.db, seed, options.shard or Shard(1, 1))
    except StoreError as error:
        parser.error(f"--db {error}")
    except NotLoaded as error:
        parser.fail(str(error))
    except (RegistryError, MachineError) as error:
        parser.error(str(error))
    with closing(store):
        try:
            status = _sweep(options, store, console, command, *about) if about else report.GREEN
        except StoreError as error:  # the disk is still full
            console.print(f"[bold red]stopped:[/] {escape(str(error))}", highlight=False)
            status = report.NO_DISK
        try:
            reported = report.write_report(store, options.report, console)
        except StoreError as error:
            console.print(f"[bold red]no report:[/] {escape(str(error))}", highlight=False)
            reported = report.NO_DISK
        return status or reported


def _opened(options) -> Store | None:
    """Return the store if its file exists. Raises StoreError if this sweep may not add to the
    file.
    """
    if not options.db.exists():
        return None
    store = Store(options.db)
    store.check(plan.LAYERS)
    for name, option, stored in ("seed", options.seed, store.seed), ("shard", options.shard, store.shard):
        if option is not None and option != stored:
            raise StoreError(
                f"{options.db}: its {name} is {stored}, --{name} says {option}: leave it out, or name another file"
            )
    if store.merged and options.seconds:
        raise StoreError(f"{options.db}: is the merge of other files, so nothing is added: name another file")
    return store


def _implementations_and_machine(options) -> tuple[list[Entry], dict]:
    """Return the implementations to sweep, and the facts of this machine."""
    entries = plan.entries(options.impl, tuple(options.impl_from), options.device, options.case_timeout)
    return entries, facts(options.device)


def _sweep(options, store: Store, console: Console, command: str, entries: list[Entry], machine: dict) -> int:
    """Run one session. Returns its exit status."""
    limit, files = options.case_timeout, tuple(options.impl_from)
    session, crew_places = uuid.uuid4().hex, places(options.device, options.workers, machine["free"])
    repeats = options.repeats or PROFILES["nightly"].repeats_on(options.device)
    about = environment(
        options.device, command=command, device_name=machine["device_name"], workers=len(crew_places), repeats=repeats,
        seed=store.seed, shard=str(store.shard),
        implementations=[entry.name for entry in entries], left_out=plan.left_out(entries, options.device),
        perturbations=machine["perturbations"],
    )  # fmt: skip
    job = plan.Job(
        db=options.db.resolve(), session=session, seed=store.seed, device=options.device,
        names=options.impl, files=files, repeats=repeats, limit=limit,
        stop=time.monotonic() + options.seconds, most=options.runs or 0, perturbations=machine["perturbations"],
        device_name=machine["device_name"],
    )  # fmt: skip
    began = time.monotonic()
    again, gone = store.recover()
    store.begin(session, about)
    console.print(
        f"flash-attest sweep: {len(entries)} implementations on {machine['device_name']}, {len(crew_places)} workers, "
        f"seed {store.seed}{f', shard {store.shard}' if store.shard.of > 1 else ''}, runs in {options.db}", highlight=False,
    )  # fmt: skip
    if any(why == sanitizer.NOT_FOUND for _, _, why in about["left_out"]):
        console.print(f"layer sanitizer is left out: {sanitizer.NOT_FOUND}", highlight=False)
    if again or gone:
        console.print(f"an earlier sweep was killed: {again} runs are tried again, {gone} did not come back twice")
    with Progress(console, session, options.seconds, options.runs or 0) as progress:
        progress.seen_before(store)
        workers = crew.Crew(job, crew_places, store, progress)
        state = workers.work()
    try:
        store.end(session, state, round(time.monotonic() - began, 1))
    except StoreError as error:
        workers.trouble = workers.trouble or str(error)
    if workers.trouble:
        console.print(f"[bold red]stopped:[/] {workers.trouble}", highlight=False)
    return STATUS[state]
