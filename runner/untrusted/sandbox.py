"""Restricts the writes of the kernel process to its own folder, its caches and devices.

This uses Landlock. So the process cannot change a report, a file of the suite, or a cache of other
runs. The system also keeps it from tracing outside processes, reading their memory, or sending them
signals. Reading files and using the network are not restricted: code that must not do so belongs in
a container.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable

# System call numbers, the same on x86-64 and on ARM.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
GIVE_VERSION, PATH_BENEATH = 1, 1
PR_SET_NO_NEW_PRIVS, PR_SET_DUMPABLE = 38, 4
WRITE_FILE, REMOVE_AND_MAKE = 1 << 1, sum(1 << n for n in range(4, 13))
REFER, TRUNCATE = 1 << 13, 1 << 14  # since versions 2 and 3
SCOPED = 0b11  # abstract sockets and signals, since version 6
DEVICES = ("/dev", "/proc")


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def version() -> int:
    """Return the version of Landlock in this system, or 0 if it has none."""
    if sys.platform != "linux":
        return 0
    return max(0, ctypes.CDLL(None).syscall(CREATE_RULESET, None, 0, GIVE_VERSION))


def enter(folders: Iterable[str]) -> None:
    """Restrict the writes of this thread, and of threads that it starts, to these folders and
    devices.

    Without Landlock nothing changes.
    """
    abi = version()
    if not abi:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    writing = WRITE_FILE | REMOVE_AND_MAKE | (REFER if abi >= 2 else 0) | (TRUNCATE if abi >= 3 else 0)
    rules = _Ruleset(writing, 0, SCOPED if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _checked(libc.syscall(CREATE_RULESET, ctypes.byref(rules), size, 0))
    for folder in (*folders, *DEVICES):
        opened = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        beneath = _Beneath(writing, opened)
        _checked(libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, ctypes.byref(beneath), 0))
        os.close(opened)
    _checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(libc.syscall(RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def hide_memory() -> None:
    """Keep other processes of this user from reading this one's memory, even without Landlock."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    return result
