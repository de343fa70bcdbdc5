"""The parent's side of a judging process: forks it, asks it, watches it and ends it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from flash_attest import interrupted
from flash_attest.properties.failures import Reason
from flash_attest.properties.progress import NOW, Seen
from flash_attest.runner.descendants import descendants
from flash_attest.runner.isolation import child
from flash_attest.runner.isolation.endings import Ending, Kind, ending_of, frames_in, last_lines
from flash_attest.runner.isolation.leftovers import COMPILERS
from flash_attest.runner.limits import NO_DEADLINE, Deadline

WHILE_COMPILING = 10  # factor on the limit while a compiler runs
SILENT = 10  # the factor on the limit outside of a call: an oracle is slow on a CPU
POLL = 0.5  # seconds between checks of a silent process; an answer or an end is noticed at once
PATIENCE = 1.0  # seconds for a process to write its stack, and to end after its pipe is closed
ENDING = 15.0  # seconds for a keeper or a host to end everything below it (leftovers.PATIENCE and more)
MOST_PROCESSES = 1000  # that an implementation may have started at one time
LOAD = Path("/proc/loadavg")
MEMORY_EVENTS = Path("/sys/fs/cgroup/memory.events")


def possible() -> bool:
    """Return whether this system can judge in separate processes. Only Linux can."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open")


@dataclass
class JudgingProcess:
    """Runs start() -> dict and answer(request) -> dict in a forked process.

    limit: seconds for a call; 0 for none. keeps_streams: print where the parent prints; otherwise
    to a file that is quoted only if the process ends. keepers: how many processes to put in between
    (keeping.py): 2 for a call that may kill its parent, 0 for a process that runs only our own
    code. tell_left: called with the commands of processes that had to be ended after it.
    """

    start: Callable[[], dict]
    answer: Callable[[dict], dict]
    limit: float
    keeps_streams: bool = False
    keepers: int = 1
    tell_left: Callable[[list[str]], None] = lambda commands: None

    def __post_init__(self):
        self.pid = 0  # the fork, which may be a keeper; 0 for none
        self._judging = 0  # the judging process, once it is up; NOW has the latest one
        self.hello: dict = {}

    def begin(self) -> Ending | None:
        """Fork the process. Returns how it ended if it did not come up."""
        self._printed = None if self.keeps_streams else tempfile.TemporaryFile()  # noqa: SIM115
        self._stack, self._left_file = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(ValueError, AttributeError):  # the program has closed it, or has none
                stream.flush()
        if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:  # the system would forget how the process ends
            with contextlib.suppress(ValueError):  # this is not the main thread
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        NOW.reset()
        NOW.forget_process()
        self._out_of_memory_before = _killed_for_memory()
        parent = os.getpid()
        try:
            with interrupted.waiting():  # until this process knows what it has to end
                self._fork(requests, answers)
                if self.pid == 0:
                    os.close(self._requests)
                    os.close(self._answers)
                    # Signals stay blocked until child.run has replaced the handlers of this
                    # process, which would let a second pytest run.
                    files = self._printed, self._stack, self._left_file
                    child.run(requests, answers, self.start, self.answer, *files, parent, self.keepers)
                os.close(requests)
                os.close(answers)
            hello = self._watch(NO_DEADLINE)  # until it is up
        except BaseException:  # Ctrl-C
            self.end()
            raise
        if isinstance(hello, Ending):
            return hello
        if "out_of_memory" in hello:
            words, why = hello["out_of_memory"]
            return replace(self._ended_here(Kind.OUT_OF_MEMORY, words), memory=Reason(why))
        self.hello, self._judging = hello, NOW.process
        return None

    def _fork(self, *pipes: int) -> None:
        try:
            with warnings.catch_warnings():
                # About threads: those of pytest-xdist hold nothing we use.
                warnings.simplefilter("ignore", DeprecationWarning)
                self.pid = os.fork()
            if self.pid:
                self._end = os.pidfd_open(self.pid)
        except BaseException:  # too many processes or descriptors
            for descriptor in (*pipes, self._requests, self._answers):
                os.close(descriptor)
            if self.pid:
                os.kill(self.pid, signal.SIGTERM)
                os.waitpid(self.pid, 0)
                self.pid = 0
            raise

    def ask(self, request: dict, deadline: Deadline = NO_DEADLINE) -> dict | Ending:
        """Return the answer, or how the process ended.

        If it ended, everything that it started has been ended too. deadline: when to end it if it
        has not answered.
        """
        NOW.reset()
        with contextlib.suppress(BrokenPipeError):  # the process is dead, which _wait notices
            child.send(self._requests, request)
        return self._wait(deadline)

    def alive(self) -> bool:
        """Return whether the process can answer."""
        return bool(self.pid) and not self._gone(0)

    def ended(self) -> Ending:
        """Return how the process ended, if it is no longer alive."""
        seen = NOW.seen()
        status = self.end()
        kind, words = ending_of(status, memory_ran_out=_killed_for_memory() > self._out_of_memory_before)
        return Ending(kind, words, seen, *self._left())

    def end(self) -> int:
        """End the process and everything it started. Returns its status."""
        if not self.pid:
            return 0
        pid, self.pid = self.pid, 0
        for descriptor in (self._requests, self._answers):  # so that nothing below waits for us to read
            os.close(descriptor)
        for stop, seconds in ((signal.SIGTERM, ENDING), (signal.SIGKILL, PATIENCE)):
            if not self._gone(0):
                os.kill(pid, stop)
                os.kill(pid, signal.SIGCONT)  # a call may stop its parent
                self._gone(seconds)
        _, status = os.waitpid(pid, 0)
        os.close(self._end)
        left = self._left_file.fileno()
        if commands := [json.loads(line) for line in os.pread(left, os.fstat(left).st_size, 0).splitlines()]:
            self.tell_left(commands)
        return status

    @property
    def number(self) -> int:
        """Return the number of the process that judges."""
        return self._judging or NOW.process or self.pid

    def _wait(self, deadline: Deadline) -> dict | Ending:
        try:
            return self._watch(deadline)
        except BaseException:  # Ctrl-C
            self.end()
            raise

    def _watch(self, deadline: Deadline) -> dict | Ending:
        events, data = select.poll(), b""
        events.register(self._answers, select.POLLIN)
        events.register(self._end, select.POLLIN)
        clock = _CallClock(self.limit)
        while True:
            seconds = min(clock.interval, max(0.0, deadline.at - time.monotonic()))
            ready = [descriptor for descriptor, _ in events.poll(1000 * seconds)]
            if self._answers in ready:
                part = os.read(self._answers, 1 << 20)
                data += part
                if (message := child.whole(data)) is not None:
                    return message
                if part:
                    continue
            if ready and self._gone(PATIENCE):
                return self.ended()
            if not os.path.exists(f"/proc/{self.number}"):  # its keeper ends what it has left
                continue
            if too_long := clock.too_long(NOW.seen(), self.number):
                return self._ended_here(Kind.TIMED_OUT, too_long)
            if time.monotonic() > deadline.at:
                return self._ended_here(Kind.TIME_LIMIT, deadline.words)
            if self.keepers and (n := _many_below(self.pid)):
                return self._ended_here(Kind.TOO_MANY, f"it had started {n} processes, more than {MOST_PROCESSES}")

    def _ended_here(self, kind: Kind, words: str) -> Ending:
        """End the process because of a limit. Returns its ending."""
        seen, pid = NOW.seen(), self.number
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, child.DUMP)
        self._gone(min(PATIENCE, 0.2))
        state = _state(pid) if kind is Kind.TIMED_OUT else []
        self.end()
        printed, frames = self._left()
        return Ending(kind, words, seen, printed, (*frames, *state))

    def _left(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return (the last lines that the process printed, its stack frames), for a process that
        has ended.
        """
        return last_lines(_text(self._printed)), frames_in(_text(self._stack))

    def _gone(self, seconds: float) -> bool:
        """Wait for the process to end. Returns whether it ended within this many seconds.

        It is not reaped here, so that its process number is not reused.
        """
        gone = select.poll()
        gone.register(self._end, select.POLLIN)
        return bool(gone.poll(1000 * seconds))


def answer_of(
    ask: Callable[[], dict], limit: float, tell_left: Callable[[list[str]], None] = lambda commands: None
) -> dict | Ending:
    """Run a function in a separate process. Returns its result, or how the process ended.

    tell_left: see JudgingProcess.
    """
    process = JudgingProcess(ask, lambda request: {}, limit, tell_left=tell_left)
    try:
        return process.begin() or process.hello
    finally:
        process.end()


def forks_can_use_cuda(limit: float = 300.0) -> bool:
    """Return whether a process forked from this one can use the GPU.

    It cannot once any code here has called CUDA, which leaves no trace, so a fork tries it.
    torch.cuda.is_available() calls CUDA, unless PYTORCH_NVML_BASED_CUDA_CHECK is set.
    """
    import torch

    if torch.cuda.is_initialized():
        return False
    return not isinstance(answer_of(lambda: {"sum": torch.zeros(1, device="cuda").sum().item()}, limit), Ending)


class _CallClock:
    """Measures the duration of the call in progress, without the time that compilers take."""

    def __init__(self, limit: float):
        self.limit = limit
        self.interval = max(0.01, min(POLL, limit / 10)) if limit else POLL
        self.began = self.compiled = 0.0

    def too_long(self, seen: Seen, pid: int) -> str:
        """Return the exceeded limit in words, or "" while the call is within it."""
        if not self.limit:
            return ""
        if not seen.in_call:
            most = SILENT * self.limit
            return f"for {most:g} s" if seen.seconds > most and not seen.compiling else ""
        if seen.began != self.began:
            self.began, self.compiled = seen.began, 0.0
        if seen.compiling or (seen.seconds > 2 * self.interval and _compiles(pid)):
            self.compiled += self.interval
        most = self.limit + min(self.compiled + seen.compiled, (WHILE_COMPILING - 1) * self.limit)
        return f"within {most:.3g} s" if seen.seconds > most else ""


def _compiles(pid: int) -> bool:
    """Return whether a compiler runs among the descendants of this process."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        names = [Path(f"/proc/{child_}/comm").read_text().strip() for child_ in children]
    except OSError:
        return False
    return any(name in COMPILERS for name in names) or any(_compiles(int(child_)) for child_ in children)


def _state(pid: int) -> list[str]:
    """Return the system's state of a hanging process: "it is sleeping, in futex_wait_queue"."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        where = Path(f"/proc/{pid}/wchan").read_text().strip("0\n")
    except OSError:
        return []
    words = next(line for line in lines if line.startswith("State")).partition("(")[2].rstrip(")")
    return [f"it is {words}" + (f", in {where}" if where else "")]


def _many_below(pid: int) -> int:
    """Return how many descendants a process has if they are too many, or 0."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        # The tasks of the whole system are quickly read.
        if int(LOAD.read_text().split()[3].partition("/")[2]) <= MOST_PROCESSES:
            return 0
    return n if (n := len(descendants(pid))) > MOST_PROCESSES else 0


def _killed_for_memory() -> int:
    """Return how many processes of this control group were killed because memory ran out.

    Returns 0 if the system does not say.
    """
    try:
        return int(dict(line.split() for line in MEMORY_EVENTS.read_text().splitlines())["oom_kill"])
    except (OSError, KeyError, ValueError):
        return 0


def _text(file) -> str:
    if file is None:
        return ""
    size = os.fstat(file.fileno()).st_size
    start = max(0, size - (1 << 16))  # only the end is shown
    return os.pread(file.fileno(), 1 << 16, start).decode(errors="replace")
