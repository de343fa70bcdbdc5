"""Chooses what holds a kernel process: bubblewrap, or Landlock, each with a filter of system calls.

bubblewrap gives it namespaces of its own. Where that is not installed or not permitted, Landlock
restricts its files. Without either, --untrusted is refused, unless FLASH_ATTEST_SANDBOX=none asks
for a run that nothing holds.
"""

from __future__ import annotations

import ctypes
import os
import sys

from flash_attest.runner.untrusted import landlock, seccomp
from flash_attest.runner.untrusted.view import DEVICES, OF_PROC, View, gpu_nodes

BUBBLEWRAP, LANDLOCK, NONE = WAYS = ("bubblewrap", "landlock", "none")
VARIABLE = "FLASH_ATTEST_SANDBOX"  # one of WAYS, to choose; by default the first that works
PR_SET_NO_NEW_PRIVS, PR_SET_DUMPABLE = 38, 4


class NotHeld(Exception):
    """Nothing here can hold a kernel process, or what was chosen cannot."""


def chosen() -> str:
    """Return what holds a kernel process here. Raises NotHeld."""
    from flash_attest.runner.untrusted import bubblewrap

    asked = os.environ.get(VARIABLE, "")
    if asked not in ("", *WAYS):
        raise NotHeld(f"{VARIABLE}={asked}: should be {', '.join(WAYS[:-1])} or {WAYS[-1]}")
    problems = {BUBBLEWRAP: bubblewrap.problem, LANDLOCK: _no_landlock, NONE: lambda: ""}
    for way in [asked] if asked else WAYS[:-1]:
        if not problems[way]():
            return way
    if asked:
        raise NotHeld(f"{VARIABLE}={asked}: {problems[asked]()}")
    raise NotHeld(
        f"nothing here can hold what it calls ({problems[BUBBLEWRAP]()}; {problems[LANDLOCK]()}): install bubblewrap; "
        f"or, in a container of its own, set {VARIABLE}=none"
    )


def in_words(way: str) -> str:
    """Return what a header and results.json say: "bubblewrap and seccomp"."""
    if way == NONE:
        return "nothing"
    name = f"Landlock {landlock.version()}" if way == LANDLOCK else way
    return f"{name} and seccomp" if seccomp.works() else name


def enter(way: str, view: View) -> None:
    """Restrict this thread, and threads and processes that it starts. bubblewrap has done so
    before, except that /proc is still writable beside a GPU (bubblewrap.py).
    """
    gpus = gpu_nodes()
    if way == NONE or (way == BUBBLEWRAP and not (gpus and landlock.version())):
        return
    ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    devices = [*(f"/dev/{name}" for name in DEVICES), *gpus]
    if gpus:
        devices.append("/proc/self/task")  # CUDA names its threads, in files there, and fails if it cannot
    # Python lists a folder before it imports from it.
    listed = {path if os.path.isdir(path) else os.path.dirname(path) for path in view.readable}
    landlock.enter([*view.allowed(), *OF_PROC], listed, view.writable, devices)
    if way == LANDLOCK and seccomp.works():
        seccomp.drop_capabilities()
        version = landlock.version()
        seccomp.enter(seccomp.program(False, version >= 6, version >= 3, os.getpid(), bool(gpus)))


def hide_memory() -> None:
    """Keep other processes of this user from reading this one's memory."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def _no_landlock() -> str:
    return "" if landlock.version() else "no Landlock, which Linux has since 5.13"
