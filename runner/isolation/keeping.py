"""The keeper: the process between pytest and a judging process.

It passes answers on, keeps the end of what is printed, and ends every process that is left when the
judging process ends, when it is told to, or when its own parent ends in any way.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import resource
import secrets
import select
import signal
import time
from collections.abc import Sequence
from typing import IO

from flash_attest.interrupted import SIGNALS
from flash_attest.runner.isolation.leftovers import adopt_orphans, end_descendants

PATIENCE = 1.0  # seconds for the judging process to end after a signal
KEPT = 1 << 16  # bytes of what was printed; only its last lines are shown
PART = 1 << 20  # bytes of one read


class Printed:
    """The end of what a judging process prints to a pipe.

    So an implementation that prints without end fills no disk. `forget` in the judging process
    drops what was printed before: it prints a mark, which arrives in order.
    """

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        os.set_blocking(self.read, False)
        self._mark = b"\0" + secrets.token_bytes(16).hex().encode() + b"\0"
        self._end, self._dropped = b"", 0

    def forget(self) -> None:
        """Drop what was printed so far. Called in the judging process."""
        os.write(self.write, self._mark)

    def take(self) -> bool:
        """Read what there is, up to PART bytes. Returns whether there was anything."""
        try:
            part = os.read(self.read, PART)
        except BlockingIOError:
            return False
        _, forgotten, printed = (self._end + part).rpartition(self._mark)
        self._end = printed[-KEPT:]
        self._dropped = (0 if forgotten else self._dropped) + len(printed) - len(self._end)
        return bool(part)

    def keep_in(self, file: IO) -> None:
        """Write the end of what was printed to a file. Called when nobody prints any more."""
        stop = time.monotonic() + PATIENCE  # a process that could not be ended may go on printing
        while self.take() and time.monotonic() < stop:
            pass
        dropped = f"[... {self._dropped:,} characters ...] ".encode() if self._dropped else b""
        os.pwrite(file.fileno(), dropped + self._end, 0)


def keep(requests: int, answers: int, printed: IO | None, left: IO, parent: int, keepers: int):
    """Fork again, so that this process becomes a keeper of the judging process.

    Returns, in the judging process: the pipe for answers, what it prints to, and its parent. The
    keeper is the parent of the new process and passes answers on. So no answer arrives from a
    process that has killed its parent. The keeper ends in the same way as the judging process.

    printed: the file for the end of what is printed, or None. left: the file for the commands of
    processes that had to be ended. parent: of this process. keepers: how many to put in between;
    with two of them, one is left if the implementation kills its parent.
    """
    while True:
        keepers -= 1
        mine, inner = os.getpid(), os.pipe() if keepers == 0 else None
        prints = Printed() if printed is not None and keepers == 0 else None
        adopt_orphans()
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        inside = os.fork()
        if inside:
            os.close(requests)
            pipes = Pipes(inner and inner[0], answers, prints)
            for descriptor in (inner and inner[1], prints and prints.write, None if inner else answers):
                if descriptor is not None:
                    os.close(descriptor)
            _keep(inside, parent, pipes, printed, left)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        os.setsid()
        parent = mine
        if inner is not None:
            for descriptor in (inner[0], answers, left.fileno(), *([prints.read] if prints else [])):
                os.close(descriptor)
            return inner[1], prints, parent


class Pipes:
    """The pipes between which a keeper passes on. answers_in: None for the outer keeper."""

    def __init__(self, answers_in: int | None, answers_out: int, prints: Printed | None):
        self.answers_in, self.answers_out, self.prints = answers_in, answers_out, prints

    @property
    def sources(self) -> Sequence[int]:
        """The descriptors to wait for."""
        printed = [self.prints.read] if self.prints else []
        return [*printed, *([] if self.answers_in is None else [self.answers_in])]

    def pass_on(self, ready: Sequence[int]) -> None:
        """Pass on what is ready."""
        if self.prints and self.prints.read in ready:
            self.prints.take()
        if self.answers_in in ready:
            data = os.read(self.answers_in, PART)
            try:
                while data:
                    data = data[os.write(self.answers_out, data) :]
            except BrokenPipeError:  # nobody waits for the answer any more
                pass


def _keep(judging: int, parent: int, pipes: Pipes, printed: IO | None, left: IO) -> None:
    """Keep a process until it ends, until this process is told to end it, or until the parent has
    ended. Never returns.
    """
    status = 1 << 8
    faulthandler.disable()  # pytest's, which would print the stack of this process
    try:
        told, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        end, above = os.pidfd_open(judging), _pidfd(parent)
        _wait(end, [told, *([] if above is None else [above])], pipes, orphaned=above is None)
        status = _end(judging, end, orphaned=above is None or _readable(above))
        commands = end_descendants()
        if pipes.prints is not None:
            pipes.prints.keep_in(printed)
        for command in commands:
            os.write(left.fileno(), json.dumps(command).encode() + b"\n")
    finally:
        _end_likewise(status)


def _wait(end: int, stops: Sequence[int], pipes: Pipes, orphaned: bool) -> None:
    """Pass on until the process has ended and nothing more is there to pass on, or until a reason
    to stop.
    """
    events = select.poll()
    for descriptor in (end, *stops, *pipes.sources):
        events.register(descriptor, select.POLLIN)
    while not orphaned:
        seen = events.poll()
        ready = [descriptor for descriptor, event in seen if event & select.POLLIN]
        if set(ready) & set(stops) or ready == [end] or (not ready and len(seen) == 0):
            return
        pipes.pass_on(ready)
        for descriptor, event in seen:  # every process has closed it
            if not event & select.POLLIN and event & select.POLLHUP:
                events.unregister(descriptor)
        if end in ready and pipes.answers_in not in ready:
            return


def _end(judging: int, end: int, orphaned: bool) -> int:
    """End the process if it has not ended. Returns its status."""
    for number in (signal.SIGKILL,) if orphaned else (signal.SIGTERM, signal.SIGKILL):
        if not _readable(end):
            os.kill(judging, number)
            os.kill(judging, signal.SIGCONT)  # a stopped process does not see SIGTERM
            _readable(end, PATIENCE)
    return os.waitpid(judging, 0)[1]


def _end_likewise(status: int) -> None:
    """End this process in the way in which another one ended."""
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler to reset
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def _pidfd(process: int) -> int | None:
    """Return a descriptor that is readable once the process ends; None if it has ended."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return None
    if os.getppid() != process:  # another process may have its number
        os.close(descriptor)
        return None
    return descriptor


def _readable(descriptor: int, seconds: float = 0.0) -> bool:
    """Wait until there is something to read, or the process of a pidfd has ended."""
    events = select.poll()
    events.register(descriptor, select.POLLIN)
    return bool(events.poll(1000 * seconds))
