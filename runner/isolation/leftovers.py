"""Ends the processes that implementations have started and left, and describes them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from flash_attest.properties.judging.plain_text import plain
from flash_attest.runner.descendants import Process, descendants, still_runs
from flash_attest.texts import cut

PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37
COMPILERS = {
    "g++",
    "gcc",
    "cc1plus",
    "as",
    "ld",
    "collect2",
    "clang",
    "clang++",
    "nvcc",
    "cicc",
    "ptxas",
    "fatbinary",
    "ninja",
}
SHARED = {"sccache"}  # servers of compilers, which other processes of this machine use, too
# Processes that libraries start for themselves, and end once their parent is gone. They are ended,
# but not reported.
HELPERS = ("torch._inductor.compile_worker", "multiprocessing.resource_tracker", "multiprocessing.forkserver")
FORK = "a fork of the process that called it"
GRACE, PATIENCE = 0.3, 10.0  # seconds for processes to end by themselves, and to end after SIGKILL
LONGEST = 100  # characters of a command
MOST_NAMED = 5  # commands in a sentence

Left = Mapping[str, Mapping[str, int]]  # implementation -> command -> how many processes


def adopt_orphans() -> None:
    """Make this process, instead of init, the parent of each descendant whose own parent ends.

    So a daemon does not escape by forking twice or by starting a session.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@contextlib.contextmanager
def nothing_left(who: str) -> Iterator[None]:
    """End every process that is left after this block, and say so. who: the command that runs.

    For a command that calls implementations in its own process, whose children are all theirs.
    """
    adopt_orphans()
    try:
        yield
    finally:
        left: dict[str, Counter[str]] = {}
        counted(left, "the call", end_descendants())
        for line in sentences(left):
            print(f"flash-attest {who}: {line}", file=sys.stderr)


def end_descendants() -> list[str]:
    """End every descendant of this process, and wait for it. Returns their commands.

    Waiting matters on a GPU, whose memory is free only when the process is gone. A process in an
    endless system call cannot be ended; after PATIENCE seconds nobody waits for it.
    """
    stop = time.monotonic() + GRACE
    while reap() and time.monotonic() < stop:
        time.sleep(0.01)
    stop, mine, commands = time.monotonic() + PATIENCE, _command(os.getpid()), {}

    def there() -> list[Process]:
        return [process for process in descendants(os.getpid()) if _name(process[0]) not in SHARED]

    while reap() and time.monotonic() < stop and (stopped := _stopped(there)):
        commands |= {process: _described(process[0], mine) for process in stopped if process not in commands}
        _signal_each(stopped, signal.SIGKILL)
        time.sleep(0.002)
    return [command for command in commands.values() if command]


_OF_IMPORTS: dict[str, list[Process]] = {}  # name of a file or module -> processes that its import started


@contextlib.contextmanager
def imports(name: str) -> Iterator[None]:
    """Record which processes this process starts in this block, for `end_those_of_imports`."""
    if sys.platform != "linux":
        yield
        return
    before, was = set(descendants(os.getpid())), ctypes.c_int()
    libc = ctypes.CDLL(None)
    libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(was), 0, 0, 0)
    adopt_orphans()
    try:
        yield
    finally:
        if started := [process for process in descendants(os.getpid()) if process not in before]:
            _OF_IMPORTS.setdefault(name, []).extend(started)
        libc.prctl(PR_SET_CHILD_SUBREAPER, was.value, 0, 0, 0)


def end_those_of_imports() -> dict[str, dict[str, int]]:
    """End what imports in this process have started and left, and all that it has started.

    Other children of this process, such as those of a user's tests, are left alone.
    """
    left: dict[str, Counter[str]] = {}
    mine = _command(os.getpid())
    for name, started in _OF_IMPORTS.items():
        seen: dict[Process, str] = {}  # -> its description; helpers of libraries, which end with us, have none

        def theirs(started: list[Process] = started, seen: dict[Process, str] = seen) -> list[Process]:
            alive = [process for process in started if process in descendants(os.getpid())]
            below = [process for top, _ in alive for process in descendants(top)]
            seen |= {p: _described(p[0], mine) for p in (*alive, *below) if p not in seen}
            return [p for p, words in seen.items() if words and _name(p[0]) not in SHARED]

        stopped = _stopped(theirs)
        counted(left, name, [seen[process] for process in stopped])
        _signal_each(stopped, signal.SIGKILL)
        stop = time.monotonic() + PATIENCE
        while any(still_runs(process) for process in stopped) and time.monotonic() < stop:
            time.sleep(0.002)
        for pid, _ in stopped:
            with contextlib.suppress(ChildProcessError):  # it is a grandchild
                os.waitpid(pid, os.WNOHANG)
    _OF_IMPORTS.clear()
    return left


def reap() -> bool:
    """Reap the children of this process that have ended. Returns whether others are left."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def counted(left: dict[str, Counter[str]], impl: str, commands: list[str]) -> None:
    """Add the commands of processes that an implementation left."""
    if commands:
        left.setdefault(impl, Counter()).update(commands)


def sentences(left: Left) -> list[str]:
    """Return "ended 2 processes that mine left: sleep 1000 (2)" for each implementation."""
    lines = []
    for impl, commands in sorted(left.items()):
        n = sum(commands.values())
        named = [f"{command} ({times})" if times > 1 else command for command, times in sorted(commands.items())]
        more = [f"{len(named) - MOST_NAMED} other commands"] if len(named) > MOST_NAMED else []
        listed = ", ".join([*named[:MOST_NAMED], *more])
        lines.append(f"ended {n} process{'es' * (n != 1)} that {impl} left: {listed}")
    return lines


def _stopped(listed: Callable[[], list[Process]]) -> list[Process]:
    """Stop processes until no new one is seen: a stopped process starts no others."""
    seen: list[Process] = []
    while new := [process for process in listed() if process not in seen]:
        seen += new
        _signal_each(new, signal.SIGSTOP)
    return seen


def _signal_each(processes: list[Process], number: int) -> None:
    for pid, _ in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def reported_name(pid: int) -> str:
    """Return the name of a process; "" for one that is not reported."""
    return _name(pid) if _described(pid, mine="") else ""


def _described(pid: int, mine: str) -> str:
    """Return a process in words; "" for one that is not reported."""
    command = _command(pid)
    if _name(pid) in COMPILERS or any(helper in command for helper in HELPERS):
        return ""
    return FORK if command == mine else plain(cut(command, LONGEST)) or _name(pid)


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return " ".join(Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")).strip()
    return ""


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    return ""
