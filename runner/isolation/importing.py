"""Imports plug-ins, whose import may do anything.

A process that may die tries it first. Then the file is imported here, and what the import changed
is restored (properties/state/imports.py). If something could not be restored, the file is not
imported here, and its contract check fails.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import os
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import thread as pools
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

from flash_attest.impls.contract import loading
from flash_attest.impls.contract.entry import Entry, RegistryError, Unloadable
from flash_attest.properties.progress import NOW
from flash_attest.properties.state import patched
from flash_attest.properties.state.imports import WHAT, ImportWatch
from flash_attest.properties.state.patched import Functions
from flash_attest.runner.isolation import leftovers, still_right
from flash_attest.runner.isolation.endings import Ending, Kind
from flash_attest.runner.isolation.parent import answer_of, possible
from flash_attest.runner.plugin.sources import is_elsewhere

START_LATER = (
    "importing its file starts threads, which the forked judging process does not have (start them in the first call)"
)
PATIENCE = 1.0  # seconds for a thread that is no daemon to end


@dataclass(frozen=True)
class Tried:
    """The effects of importing a file, as a process that may die has found them.

    problem: why it cannot be imported in this process, or "". broken: the changes that break the
    contract. remarks: the others that are worth a word.
    """

    problem: str = ""
    broken: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def loaded(argument: str, limit: float, already: Tried | None = None) -> tuple[list[Entry], Tried]:
    """Return the entries of a file, and what importing it does.

    argument: a value of --impl-from. limit: seconds for the import; 0 for none. already: the
    result of another process, which has tried it. It is not tried where processes cannot be forked.
    """
    with _contained() as threads:
        functions = patched.loaded()
        if already is None and possible() and loading.can_be_tried(argument):
            already = _tried(argument, limit, functions, threads)
        if already and already.problem:
            return [unloadable(argument, already.problem)], already
        return _imported(argument, already, functions)


def entries_of(argument: str, limit: float) -> list[Entry]:
    """Return the entries of a file, as `loaded` does."""
    return loaded(argument, limit)[0]


def tried(argument: str, limit: float) -> Tried:
    """Import a file in a process that may die.

    No problem is reported if the import raises an ordinary exception.
    """
    with _contained() as threads:
        return _tried(argument, limit, patched.loaded(), threads)


def imported(argument: str) -> list[Entry]:
    """Import a file in this process, as loading.from_file does, and undo what else it does."""
    with _contained():
        return _imported(argument, None, patched.loaded())[0]


def _tried(argument: str, limit: float, functions: Functions, threads: list[threading.Thread]) -> Tried:
    """Import a file as `tried` does.

    functions: as they are now. They are recorded before the fork, where that costs a third.
    threads: the list of `_contained`.
    """

    def start() -> dict:
        gc.freeze()  # so that no old object is freed meanwhile, and closes its file
        threads.clear()
        watch = ImportWatch(functions, disposable=True)
        try:
            with NOW.call():
                loading.from_file(argument, watch)
        except RegistryError:
            pass
        except KeyboardInterrupt:
            return {"problem": f"{WHAT} raises KeyboardInterrupt", "wrong": ""}
        lasting = [f"{each}, and that cannot be undone here" for each in watch.lasting]
        wrong = "" if lasting else still_right.problem()
        broken, remarks = [*watch.broken, *_running_on(threads)], [*watch.remarks, *_children()]
        return {"problem": "; ".join(lasting), "wrong": wrong, "broken": broken, "remarks": remarks}

    answer = answer_of(start, limit)
    if isinstance(answer, Ending):
        does = "does not end" if answer.kind is Kind.TIMED_OUT else "ends the process:"
        sentence = _sentence(argument, f"{WHAT} {does} {answer.words}", _line_in(argument, answer.frames))
        lines = [sentence, *(f"  {line}" for line in answer.observed)]
        return Tried("\n".join(lines))
    if answer["wrong"]:  # the import is to blame only if the suite is right without it
        without = answer_of(lambda: {"wrong": still_right.problem()}, limit)
        answer["problem"] = "" if isinstance(without, Ending) or without["wrong"] else answer["wrong"]
    if answer["problem"]:
        return Tried(_sentence(argument, answer["problem"]))
    return Tried("", tuple(answer["broken"]), tuple(answer["remarks"]))


def _imported(argument: str, already: Tried | None, functions: Functions) -> tuple[list[Entry], Tried]:
    before, watch = set(threading.enumerate()), ImportWatch(functions)
    with leftovers.imports(loading.file_of(argument)[0].name):
        entries = loading.from_file(argument, watch)
    threads = [thread for thread in threading.enumerate() if thread not in before]
    for thread in threads:
        pools._threads_queues.pop(thread, None)  # Python waits for the threads of a pool, daemons or not
    did = already or Tried("", tuple(watch.broken), tuple(watch.remarks))
    names, settings = tuple(thread.name for thread in threads), tuple(watch.settings)
    found = {"threads": names, "broken": did.broken, "remarks": did.remarks, "settings": settings}
    return [replace(entry, **found) for entry in entries], did


def started(threads: Sequence[str]) -> list[str]:
    """Return the threads that an import started, as a fact for messages about hanging calls."""
    return [f"{START_LATER}: {', '.join(threads)}"] if threads else []


def unloadable(argument: str, problem: str) -> Entry:
    """Return the entry of a file that cannot be imported."""
    path, _ = loading.file_of(argument)
    module = loading.module_of(argument)
    return Entry(
        Unloadable(loading.as_name(module[0] if module else path.stem), problem),
        str(path),
        loading.option_of(argument),
    )


def _sentence(argument: str, problem: str, line: str = "") -> str:
    return f"{loading.file_of(argument)[0]}{line}: {problem}"


def _line_in(argument: str, frames: Sequence[str]) -> str:
    """Return ":LINE" of a file if one of the frames, as Ending has them, lies in it; else ""."""
    begin = f"at {loading.file_of(argument)[0].absolute()}:"
    return next((f":{frame.removeprefix(begin).partition(',')[0]}" for frame in frames if frame.startswith(begin)), "")


@contextlib.contextmanager
def _contained() -> Iterator[list[threading.Thread]]:
    """Keep what an import starts from keeping this process alive, or changing its exit status.

    Only exit handlers of libraries are kept. Threads become daemons; those that were none are
    yielded.
    """
    register, start, threads = atexit.register, threading.Thread.start, []

    def registered(function: Callable, *arguments: object, **options: object) -> Callable:
        if _of_a_library(function, sys._getframe(1).f_code.co_filename):
            register(function, *arguments, **options)
        return function

    def started_as_daemon(thread: threading.Thread) -> None:
        if not thread.daemon and thread.ident is None:
            threads.append(thread)
            thread.daemon = True
        start(thread)

    with (
        mock.patch.object(atexit, "register", registered),
        mock.patch.object(threading.Thread, "start", started_as_daemon),
    ):
        yield threads


def _of_a_library(function: object, caller: str) -> bool:
    """Return whether a library has registered an exit handler of its own.

    caller: the file of the code that registers it.
    """
    while isinstance(function, (functools.partial, types.MethodType)):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    code = getattr(function, "__code__", None)
    files = [caller, *([code.co_filename] if isinstance(code, types.CodeType) else [])]
    ends = code is None and getattr(function, "__module__", None) == os.name  # os._exit is posix._exit
    return not ends and all(file.startswith("<frozen ") or is_elsewhere(Path(file).resolve()) for file in files)


def _running_on(threads: Sequence[threading.Thread]) -> list[str]:
    """Return, in words, which of these threads do not end soon."""
    until = time.monotonic() + PATIENCE
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    names = [thread.name for thread in threads if thread.is_alive()]
    if not names:
        return []
    which = f"a thread ({names[0]}) that is no daemon and runs" if len(names) == 1 else (
        f"threads ({', '.join(names[:3])}) that are no daemons and run"
    )  # fmt: skip
    return [f"{WHAT} starts {which} on: a program that imports it does not end"]


def _children() -> list[str]:
    """Return, in words, which processes the import has started and left running, without those that
    libraries start for themselves.
    """
    try:
        numbers = [
            each for task in Path("/proc/self/task").iterdir() for each in (task / "children").read_text().split()
        ]
        states = [Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] for number in numbers]
    except OSError:  # this system does not tell, or one has just ended
        return []
    running = [int(number) for number, state in zip(numbers, states, strict=True) if state != "Z"]
    names = [name for number in running if (name := leftovers.reported_name(number))]
    if not names:
        return []
    which, them = (f"a process ({names[0]})", "it") if len(names) == 1 else (
        f"processes ({', '.join(names[:3])})", "them"
    )  # fmt: skip
    return [f"{WHAT} starts {which} and leaves {them} running"]
