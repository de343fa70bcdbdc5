"""The process: its folder, environment, streams, signal handlers, hooks."""

from __future__ import annotations

import gc
import locale
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress

from flash_attest.properties.state.thing import Import, Thing, same_object

SIGNALS = [n for n in range(1, 32) if n not in (signal.SIGKILL, signal.SIGSTOP)]
STREAMS = {0: "standard input", 1: "standard output", 2: "standard error"}


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "a folder that is gone"


def _set_directory(before: str) -> None:
    with suppress(OSError):  # the call has removed the folder
        os.chdir(before)


_environment = os.environ._data  # private, but a copy of os.environ itself takes 40 microseconds


def _set_environment(before: dict) -> None:
    for name in [*os.environb]:
        if name not in before:
            del os.environb[name]
    for name, value in before.items():
        os.environb[name] = value


def _environment_words(before: dict, after: dict) -> str:
    names = [os.fsdecode(n) for n in sorted({*before, *after}) if before.get(n) != after.get(n)]
    return f"changes the environment ({', '.join(names[:5])}) and does not restore it"


OF_THE_RUN = (b"CUDA_VISIBLE_DEVICES",)  # each worker has its GPU


def _environment_again(before: dict, after: dict) -> None:
    for name in {*before, *after} - {*OF_THE_RUN}:
        if name not in after:
            os.environb.pop(name, None)
        elif before.get(name) != after[name]:
            os.environb[name] = after[name]


def _set_filters(before: list) -> None:
    warnings.filters[:] = before
    with warnings.catch_warnings():  # this makes Python forget which warnings it has filtered
        pass


def _filters_words(before: list, after: list) -> str:
    added = [f for f in after if f not in before]
    return f"changes the warnings filters{f' ({added[0][0]})' if added else ''} and does not restore them"


_handler = sys.modules["_signal"].getsignal  # signal.getsignal makes an enum, which takes ten times as long


def _handlers() -> list:
    return [_handler(n) for n in SIGNALS]


def _set_handlers(before: list) -> None:
    for number, handler, now in zip(SIGNALS, before, _handlers(), strict=True):
        if handler != now:
            with suppress(ValueError):  # this is not the main thread
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _handlers_words(before: list, after: list) -> str:
    names = [signal.Signals(n).name for n, a, b in zip(SIGNALS, before, after, strict=True) if a != b]
    return f"installs a signal handler ({', '.join(names)}) and leaves it installed"


def _alarm() -> bool:
    return signal.getitimer(signal.ITIMER_REAL)[0] > 0


def _stop_alarm(before: bool) -> None:
    if not before:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _file(descriptor: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _files() -> tuple:
    return tuple(_file(n) for n in STREAMS)


_duplicates: dict[int, int] = {}  # a second descriptor of each standard stream


def keep_streams() -> None:
    """Keep copies of the standard streams, to restore them later. Call this when they are final."""
    for number in STREAMS:
        if _file(number) is not None:
            old, _duplicates[number] = _duplicates.get(number), os.dup(number)
            if old is not None:
                os.close(old)


def _set_files(before: tuple) -> None:
    for number, was in zip(STREAMS, before, strict=True):
        if _file(number) != was and _duplicates.get(number) is not None:
            if _file(_duplicates[number]) is None:  # the duplicate is closed, too
                _duplicates[number] = os.open(os.devnull, os.O_RDWR)
            os.dup2(_duplicates[number], number)


def _files_words(before: tuple, after: tuple) -> str:
    names = [name for name, a, b in zip(STREAMS.values(), before, after, strict=True) if a != b]
    closed = all(b is None for a, b in zip(before, after, strict=True) if a != b)
    it = "it" if len(names) == 1 else "them"
    return f"{'closes' if closed else 'redirects'} {' and '.join(names)} and does not restore {it}"


def _stream(name: str, number: int) -> Thing:
    def read() -> tuple:
        stream = getattr(sys, name, None)
        return stream, getattr(stream, "closed", False)

    def put_back(before: tuple) -> None:
        stream, closed = before
        if stream is not None and stream.closed and not closed:
            stream = open(number, "w", closefd=False, errors="backslashreplace")  # noqa: SIM115
        setattr(sys, name, stream)

    def words(before: tuple, after: tuple) -> str:
        return f"{'replaces' if before[0] is not after[0] else 'closes'} sys.{name} and does not restore it"

    return Thing(f"sys.{name}", read, put_back, words)


def _installed(by: str) -> Callable[[object, object], str]:
    return lambda before, after: f"installs another function with {by} and does not restore it"


THINGS = (
    Thing("the working directory", _directory, _set_directory, steady=True),
    Thing(
        "the environment",
        _environment.copy,
        _set_environment,
        _environment_words,
        lazily=True,
        imported=Import.ALLOWED,
        again=_environment_again,
    ),
    Thing(
        "the warnings filters",
        lambda: warnings.filters[:],
        _set_filters,
        _filters_words,
        lazily=True,
        imported=Import.ALLOWED,
    ),
    Thing(
        "sys.path",
        lambda: sys.path[:],
        lambda before: sys.path.__setitem__(slice(None), before),
        lambda before, after: "changes sys.path and does not restore it",
        lazily=True,
    ),
    Thing(
        "the locale",
        lambda: locale.setlocale(locale.LC_ALL),
        lambda b: locale.setlocale(locale.LC_ALL, b) and None,
        steady=True,
    ),
    Thing(
        "the umask",
        _umask,
        os.umask,
        lambda b, a: f"sets the umask to {a:#o} and does not restore it (it was {b:#o})",
        steady=True,
    ),
    Thing("the standard streams", _files, _set_files, _files_words, steady=True),
    _stream("stdout", 1),
    _stream("stderr", 2),
    Thing("the signal handlers", _handlers, _set_handlers, _handlers_words, steady=True),
    Thing("the alarm clock", _alarm, _stop_alarm, lambda b, a: "leaves an alarm on (signal.alarm)", steady=True),
    Thing("Python's recursion limit", sys.getrecursionlimit, sys.setrecursionlimit, imported=Import.REMARK),
    Thing("Python's garbage collection (enabled)", gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    same_object("sys.excepthook", sys, "excepthook", imported=Import.REMARK),
    same_object("sys.unraisablehook", sys, "unraisablehook", imported=Import.REMARK),
    same_object("threading.excepthook", threading, "excepthook", imported=Import.REMARK),
    Thing("Python's trace function", sys.gettrace, sys.settrace, _installed("sys.settrace")),
    Thing("Python's profile function", sys.getprofile, sys.setprofile, _installed("sys.setprofile")),
)
