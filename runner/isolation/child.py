"""The judging process: it answers requests until it dies, is ended, or loses its parent."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import IO

from flash_attest.interrupted import SIGNALS
from flash_attest.properties.failures import OutOfMemory, Reason
from flash_attest.properties.judging.verdict import Result
from flash_attest.properties.progress import NOW
from flash_attest.properties.state.process_things import keep_streams
from flash_attest.runner.isolation.keeping import Printed, keep

PR_SET_PDEATHSIG = 1
DUMP = signal.SIGUSR1  # makes the process write its stack
INTERRUPTED = 130  # the exit status of a process that was told to end
HEAD = 8  # bytes of the length before each message


def send(pipe: int, message: dict) -> None:
    """Write a message as JSON, so that nothing an implementation made is ever unpickled."""
    data = json.dumps(message).encode()
    data = len(data).to_bytes(HEAD, "little") + data
    while data:
        data = data[os.write(pipe, data) :]


def receive(pipe: int) -> dict | None:
    """Return the next message, or None if the other side has closed the connection."""
    data = b""
    while (message := whole(data)) is None:
        part = os.read(pipe, 1 << 20)
        if not part:
            return None
        data += part
    return message


def whole(data: bytes) -> dict | None:
    """Return the message in these bytes, or None while it is incomplete."""
    if len(data) < HEAD or len(data) < HEAD + int.from_bytes(data[:HEAD], "little"):
        return None
    return json.loads(data[HEAD:])


def record_of(result: Result) -> dict:
    """Return a result as plain data for a message."""
    return asdict(result) | {"why": result.why and result.why.value}


def as_result(record: dict) -> Result:
    """Return the result from which `record_of` made this record."""
    return Result(**record | {"why": record["why"] and Reason(record["why"])})


def run(
    requests: int,
    answers: int,
    start: Callable[[], dict],
    answer: Callable[[dict], dict],
    printed: IO | None,
    stack: IO,
    left: IO,
    parent: int,
    keepers: int,
) -> None:
    """Run the judging loop in a fresh fork. Never returns.

    printed: the file for the end of what the standard streams get; None keeps these streams. stack:
    the file for stack dumps. left, keepers: see keeping.keep; without a keeper, `printed` replaces
    the standard streams.
    """
    try:
        prints, to = None, None if printed is None else printed.fileno()
        os.setsid()  # Ctrl-C does not reach a separate session
        for number in SIGNALS:  # blocked until here
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        if keepers:
            answers, prints, parent = keep(requests, answers, printed, left, parent, keepers)
            to = prints and prints.write
        die_with(parent)
        _settle(to, stack)
        for descriptor in (requests, answers):
            os.set_inheritable(descriptor, False)
        _close_in_forks(requests, answers)
        try:
            hello = start()
        except OutOfMemory as error:
            hello = {"out_of_memory": [str(error), error.why.value]}
        send(answers, hello)
        while (request := receive(requests)) is not None:
            _forget(prints, stack)
            NOW.reset()
            reply = answer(request)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            send(answers, reply)
        os._exit(0)
    except KeyboardInterrupt:  # a host is told to end
        os._exit(INTERRUPTED)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(1)


def die_with(parent: int) -> None:
    """Die when the parent dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _settle(prints_to: int | None, stack: IO) -> None:
    """Set the process up: redirect the standard streams and register stack dumps."""
    NOW.is_mine()
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    if prints_to is not None:
        os.dup2(prints_to, 1)
        os.dup2(prints_to, 2)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)  # noqa: SIM115
    keep_streams()
    faulthandler.enable(stack, all_threads=False)
    faulthandler.register(DUMP, stack, all_threads=False)


def _forget(prints: Printed | None, stack: IO) -> None:
    """Forget what earlier laws printed, and their stack dumps."""
    if prints is not None:
        prints.forget()
    os.ftruncate(stack.fileno(), 0)
    os.lseek(stack.fileno(), 0, os.SEEK_SET)


def _close_in_forks(*descriptors: int) -> None:
    """Close these descriptors in children of this process, so that they cannot answer its parent.

    Grandchildren are left alone: they may have opened files under the same numbers.
    """
    mine = os.getpid()
    os.register_at_fork(after_in_child=lambda: os.getppid() == mine and _close(*descriptors))


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        try:
            os.close(descriptor)
        except OSError:  # the implementation has closed it
            continue
