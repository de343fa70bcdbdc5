"""Restricts which files a process reads and writes, with Landlock.

Landlock allows and never forbids: a folder that holds something hidden is allowed by its other
parts, one by one.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable

# System call numbers, the same on x86-64 and on ARM.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
GIVE_VERSION, PATH_BENEATH = 1, 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = (1 << n for n in range(4))
REMOVE_AND_MAKE = sum(1 << n for n in range(4, 13))
REFER, TRUNCATE = 1 << 13, 1 << 14  # since versions 2 and 3
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE  # the rights that a rule for a single file may have
NETWORK = 0b11  # to bind and to connect, since version 4
SCOPED = 0b11  # abstract sockets and signals, since version 6
READ = EXECUTE | READ_FILE | READ_DIR


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


def enter(readable: Iterable[str], listed: Iterable[str], writable: Iterable[str], devices: Iterable[str]) -> None:
    """Restrict this thread, and threads and processes that it starts.

    readable, writable: files and folders with all below. listed: folders whose names may be listed,
    with those below. devices: files to read and to write. prctl must have set no_new_privs. A path
    that does not exist is left out.
    """
    abi, libc = version(), ctypes.CDLL(None, use_errno=True)
    changing = WRITE_FILE | REMOVE_AND_MAKE | (REFER if abi >= 2 else 0) | (TRUNCATE if abi >= 3 else 0)
    rules = _Ruleset(READ | changing, NETWORK if abi >= 4 else 0, SCOPED if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _checked(libc.syscall(CREATE_RULESET, ctypes.byref(rules), size, 0))
    for paths, allowed in (
        (readable, READ),
        (listed, READ_DIR),
        (writable, READ | changing),
        (devices, (READ | changing) & ~REMOVE_AND_MAKE),
    ):
        for path in paths:
            try:
                opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            beneath = _Beneath(allowed if os.path.isdir(path) else allowed & OF_FILES & rules.files, opened)
            if beneath.allowed:
                _checked(libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, ctypes.byref(beneath), 0))
            os.close(opened)
    _checked(libc.syscall(RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    return result
