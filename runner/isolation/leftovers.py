"""Ends the processes that implementations have started and left, and describes them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from flash_attest.properties.judging.plain_text import plain
from flash_attest.texts import cut

PR_SET_CHILD_SUBREAPER = 36
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
        for line in sentences({"the call": Counter(end_descendants())}):
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
    while reap() and time.monotonic() < stop:
        there = [process for process in descendants(os.getpid()) if _name(process[0]) not in SHARED]
        if not there:
            break
        # Stop them first, until no new one is seen: a stopped process starts no others.
        if new := [process for process in there if process not in commands]:
            commands |= {process: _described(process[0], mine) for process in new}
            _signal_each(new, signal.SIGSTOP)
            continue
        _signal_each(there, signal.SIGKILL)
        time.sleep(0.002)
    return [command for command in commands.values() if command]


def reap() -> bool:
    """Reap the children of this process that have ended. Returns whether others are left."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def descendants(of: int) -> list[tuple[int, str]]:
    """Return the descendants of a process that have not ended: (process id, start time).

    The two together are never reused.
    """
    children: dict[int, list[tuple[int, str, str]]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdecimal() and (fields := _stat(int(entry))):
            children.setdefault(int(fields[1]), []).append((int(entry), fields[19], fields[0]))
    found, parents = [], [of]
    for parent in parents:  # grows while it is read
        for pid, started, state in children.get(parent, ()):
            parents.append(pid)
            if state not in "ZX":
                found.append((pid, started))
    return found


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


def _signal_each(processes: list[tuple[int, str]], number: int) -> None:
    for pid, _ in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


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


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name: state, parent, ..., start time."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()
    return []
