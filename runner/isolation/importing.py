"""Tries the first import of a plug-in in a process that may die: it may abort or never end."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from unittest import mock

from flash_attest.impls.contract import registry
from flash_attest.impls.contract.registry import Entry, Unloadable
from flash_attest.properties.progress import NOW
from flash_attest.runner.isolation.endings import Ending, Kind
from flash_attest.runner.isolation.parent import answer_of, possible

START_LATER = (
    "importing its file starts threads, which the forked judging process does not have (start them in the first call)"
)


def problem_of(argument: str, limit: float) -> str:
    """Return why a file cannot be imported in this process, or "" if it can.

    The result is also "" if the import raises an ordinary exception. argument: a value of
    --impl-from. limit: seconds; 0 for none.
    """

    def start() -> dict:
        try:
            with NOW.call():
                registry.from_file(argument)
        except registry.RegistryError:
            pass
        except KeyboardInterrupt:
            return {"problem": "raises KeyboardInterrupt"}
        return {"problem": ""}

    ending = answer_of(start, limit)
    if not isinstance(ending, Ending):
        return ending["problem"] and _sentence(argument, ending["problem"])
    does = "does not end" if ending.kind is Kind.TIMED_OUT else "ends the process:"
    sentence = _sentence(argument, f"{does} {ending.words}", _line_in(argument, ending.frames))
    return "\n".join([sentence, *(f"  {line}" for line in ending.observed)])


def entries_of(argument: str, limit: float) -> list[Entry]:
    """Return the entries of a file, which another process imports first.

    A file that would end this process becomes an `Unloadable`. limit: seconds; 0 for none.
    """
    tried = possible() and registry.can_be_tried(argument)
    if tried and (problem := problem_of(argument, limit)):
        return [unloadable(argument, problem)]
    return imported(argument)


def imported(argument: str) -> list[Entry]:
    """Import a file in this process, as registry.from_file does.

    Its exit handlers are dropped. The entries name the threads that it starts.
    """
    before = set(threading.enumerate())
    with no_exit_handlers():
        entries = registry.from_file(argument)
    started = tuple(thread.name for thread in threading.enumerate() if thread not in before)
    return [replace(entry, threads=started) for entry in entries]


def started(threads: Sequence[str]) -> list[str]:
    """Return the threads that an import started, as a fact for messages about hanging calls."""
    return [f"{START_LATER}: {', '.join(threads)}"] if threads else []


@contextlib.contextmanager
def no_exit_handlers() -> Iterator[None]:
    """Keep plug-ins from registering exit handlers: one could change pytest's exit status."""
    register = atexit.register

    def registered(function: Callable, *arguments: object, **options: object) -> Callable:
        module = getattr(function, "__module__", None) or ""
        if not module.startswith((registry.MODULES, os.name)):  # os._exit is posix._exit
            register(function, *arguments, **options)
        return function

    with mock.patch.object(atexit, "register", registered):
        yield


def unloadable(argument: str, problem: str) -> Entry:
    """Return the entry of a file that cannot be imported."""
    path, _ = registry.file_of(argument)
    module = registry.module_of(argument)
    return Entry(
        Unloadable(registry.as_name(module[0] if module else path.stem), problem),
        str(path),
        registry.option_of(argument),
    )


def _sentence(argument: str, problem: str, line: str = "") -> str:
    return f"{registry.file_of(argument)[0]}{line}: importing it {problem}"


def _line_in(argument: str, frames: Sequence[str]) -> str:
    """Return ":LINE" of a file if one of the frames, as Ending has them, lies in it; else ""."""
    begin = f"at {registry.file_of(argument)[0].absolute()}:"
    return next((f":{frame.removeprefix(begin).partition(',')[0]}" for frame in frames if frame.startswith(begin)), "")
