"""The judging process: answers requests until it dies, is ended, or its parent is gone."""

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
DUMP = signal.SIGUSR1  # has the process write where it is
HEAD = 8  # bytes of the length before each message


def send(pipe: int, message: dict) -> None:
    """Write a message. JSON, so that nothing that an implementation made is unpickled."""
    data = json.dumps(message).encode()
    data = len(data).to_bytes(HEAD, "little") + data
    while data:
        data = data[os.write(pipe, data) :]


def receive(pipe: int) -> dict | None:
    """The next message; None if the other side is gone."""
    data = b""
    while (message := whole(data)) is None:
        part = os.read(pipe, 1 << 20)
        if not part:
            return None
        data += part
    return message


def whole(data: bytes) -> dict | None:
    """The message that these bytes are; None while some are missing."""
    if len(data) < HEAD or len(data) < HEAD + int.from_bytes(data[:HEAD], "little"):
        return None
    return json.loads(data[HEAD:])


def record_of(result: Result) -> dict:
    """A result as a message has it."""
    return asdict(result) | {"why": result.why and result.why.value}


def as_result(record: dict) -> Result:
    """The result of a record."""
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
    """What a fresh fork does. Never returns.

    printed: the file that takes the place of its standard streams; None: they stay. stack: where it writes its frames. kept:
    by another process, for it may kill its parent.
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
    """Fork once more. Returns the pipe for answers in the new process, which finds this one as its parent, and not pytest.

    This one passes the answers on, so that none comes from a process that has killed its parent; and ends as it ends.
    """
    keeper, (inner, outer) = os.getpid(), os.pipe()
    judging = os.fork()
    if judging == 0:
        apart(keeper)
        os.close(inner)
        os.close(answers)
        return outer
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
    _, status = os.waitpid(judging, 0)
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(keeper, os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


def apart(parent: int) -> None:
    """A session of its own, which no Ctrl-C reaches and which can be ended as a whole; and an end with its parent."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _settle(printed: IO | None, stack: IO) -> None:
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
    """Empty the files for the next law."""
    for file in filter(None, (printed, stack)):
        os.ftruncate(file.fileno(), 0)
        os.lseek(file.fileno(), 0, os.SEEK_SET)


def _close_in_forks(*descriptors: int) -> None:
    """What this process forks says nothing to its parent: these descriptors are closed there.

    Only in its own children: theirs may have opened files under the same numbers.
    """
    mine = os.getpid()
    os.register_at_fork(after_in_child=lambda: os.getppid() == mine and _close(*descriptors))


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        try:
            os.close(descriptor)
        except OSError:  # the implementation has closed it
            continue
