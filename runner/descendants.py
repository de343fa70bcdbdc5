"""Finds the processes that a process has started, and those that they have started.

It imports nothing else of the suite: the process of an untrusted kernel imports it, too.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

ENDED = "ZX"  # the states of a process that has ended
Process = tuple[int, str]  # process id, start time: the two together are never reused


def descendants(of: int, ended: bool = False) -> list[Process]:
    """Return the descendants of a process.

    ended: also those that have ended but were not reaped. Where this system does not tell, there
    are none.
    """
    found = _listed(of, ended)
    # A process that starts while the list is read is not in it, nor is its parent if that ends
    # meanwhile. So a daemon that is just forking is in the second list alone.
    return [*found, *(process for process in _listed(of, ended) if process not in found)]


def _listed(of: int, ended: bool) -> list[Process]:
    children: dict[int, list[tuple[int, str, str]]] = {}
    with contextlib.suppress(OSError):
        for entry in os.listdir("/proc"):
            if entry.isdecimal() and (fields := _stat(int(entry))):
                children.setdefault(int(fields[1]), []).append((int(entry), fields[19], fields[0]))
    found, parents = [], [of]
    for parent in parents:  # grows while it is read
        for pid, started, state in children.get(parent, ()):
            parents.append(pid)
            if ended or state not in ENDED:
                found.append((pid, started))
    return found


def still_runs(process: Process) -> bool:
    """Return whether a process has not ended."""
    pid, started = process
    fields = _stat(pid)
    return bool(fields) and fields[19] == started and fields[0] not in ENDED


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name: state, parent, ..., start time."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].decode().split()
    return []
