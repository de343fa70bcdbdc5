"""The judging process: it answers requests until it dies, is ended, or loses its parent."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import resource
import select
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import IO

from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.verdict import Result
from flash_attest.properties.progress import NOW
from flash_attest.properties.state.process_things import keep_streams

PR_SET_PDEATHSIG = 1
DUMP = signal.SIGUSR1  # makes the process write its stack
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
    parent: int,
    kept: bool,
) -> None:
    """Run the judging loop in a fresh fork. Never returns.

    printed: the file that replaces the standard streams; None keeps them. stack: the file for stack
    dumps. kept: put a keeper process in between, as the implementation may kill its parent.
    """
    try:
        apart(parent)
        if kept:
            answers = keep(requests, answers)
        _settle(printed, stack)
        for descriptor in (requests, answers):
            os.set_inheritable(descriptor, False)
        _close_in_forks(requests, answers)
        send(answers, start())
        while (request := receive(requests)) is not None:
            _forget(printed, stack)
            NOW.reset()
            reply = answer(request)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            send(answers, reply)
        os._exit(0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(1)


def keep(requests: int, answers: int) -> int:
    """Fork again, so that this process becomes a keeper between the judging process and pytest.

    Returns, in the new process, the pipe for answers. The keeper is the parent of the new process
    and passes answers on. So no answer arrives from a process that has killed its parent. The
    keeper ends in the same way as the judging process.
    """
    keeper, (inner, outer) = os.getpid(), os.pipe()
    judging = os.fork()
    if judging == 0:
        apart(keeper)
        os.close(inner)
        os.close(answers)
        return outer
    # This is the keeper: pass answers on until the judging process has ended.
    os.close(requests)
    os.close(outer)
    end, events = os.pidfd_open(judging), select.poll()
    for descriptor in (inner, end):
        events.register(descriptor, select.POLLIN)
    while (ready := [descriptor for descriptor, _ in events.poll()]) != [end]:
        if data := inner in ready and os.read(inner, 1 << 20):
            os.write(answers, data)
        else:
            break
    # End in the same way.
    _, status = os.waitpid(judging, 0)
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL has no handler to reset
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(keeper, os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def apart(parent: int) -> None:
    """Start a new session, and die when the parent dies.

    Ctrl-C does not reach a separate session, and the session can be ended as a whole.
    """
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _settle(printed: IO | None, stack: IO) -> None:
    """Set the process up: redirect the standard streams and register stack dumps."""
    NOW.is_mine()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    if printed is not None:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
        sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)  # noqa: SIM115
    keep_streams()
    faulthandler.enable(stack, all_threads=False)
    faulthandler.register(DUMP, stack, all_threads=False)


def _forget(printed: IO | None, stack: IO) -> None:
    """Empty the files before the next law."""
    for file in filter(None, (printed, stack)):
        os.ftruncate(file.fileno(), 0)
        os.lseek(file.fileno(), 0, os.SEEK_SET)


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
