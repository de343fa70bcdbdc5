"""Runs a user's file in a process of its own, so that a file that ends its process is named."""

from __future__ import annotations

import atexit
import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable

from flash_attest.arguments import INTERRUPTED


class Ended(Exception):
    """The file ended its process. The message says how."""


def run_apart(work: Callable[[], int]) -> int:
    """Call `work` in a fork of this process. Returns its result, an exit status.

    Raises Ended if the process ends before `work` returns. Without os.fork, the call is made here.
    """
    if not hasattr(os, "fork"):
        return work()
    reads, writes = os.pipe()
    _flush()
    child = os.fork()
    if child == 0:
        os.close(reads)
        _child(work, writes)
    os.close(writes)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the child, too, which ends
    try:
        _, status = os.waitpid(child, 0)
        # No wait for the end of the pipe: a process that the file left behind keeps it open.
        os.set_blocking(reads, False)
        try:
            returned = os.read(reads, 1)
        except BlockingIOError:
            returned = b""
    finally:
        os.close(reads)
        signal.signal(signal.SIGINT, before)
    if returned:
        return returned[0]
    if os.WIFSIGNALED(status):
        raise Ended(f"signal {os.WTERMSIG(status)} ({signal.strsignal(os.WTERMSIG(status))})".lower())
    raise Ended(f"exit status {os.WEXITSTATUS(status)}")


def _child(work: Callable[[], int], writes: int) -> None:
    """Call `work`, write its status, and end as Python does at the end of a program."""
    faulthandler.enable()  # prints the line of a crash
    process = os.getpid()
    try:
        status = work()
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BaseException:
        traceback.print_exc()
        status = 3
    if os.getpid() == process:  # the file may have forked
        os.write(writes, bytes([status]))
    threading._shutdown()
    atexit._run_exitfuncs()
    _flush()
    os._exit(status)


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
