"""The judging side's handle on a kernel process: it starts, asks, ends and replaces the process."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from flash_attest.places import IMPORTED_FROM, IN_CHECKOUT
from flash_attest.runner.isolation.endings import ending_of, last_lines
from flash_attest.runner.untrusted import bubblewrap, limits, needs, reading, sandbox, surroundings, wire
from flash_attest.runner.untrusted.shared import Shared

PATIENCE = 1.0  # seconds for a process that has closed its connection to end
BUFFER = 1 << 20  # bytes that a connection holds
CREDENTIALS = "3i"  # of a sender, from the system: process, user, group
# -I ignores variables, the user's folders and the present one; -B writes no compiled modules.
PYTHON = ("-I", "-B")
BOOT = "import sys; sys.path.insert(0, {root!r}); from {kernel} import main; main({connection})"


class KernelEnded(Exception):
    """The kernel process ended by itself or was ended.

    status: as os.waitpid gives it, or None if the process was ended. printed: its last lines.
    """

    def __init__(self, words: str, status: int | None = None, printed: Sequence[str] = ()):
        super().__init__(words)
        self.words, self.status, self.printed = words, status, printed


class KernelProcess:
    """A kernel process for one --impl-from.

    It belongs to the process that first asks it a question; forks of that process start other
    kernel processes.
    """

    def __init__(self, argument: str, reports: Iterable[str] = ()):
        """Make a handle. reports: folders that the process must not read."""
        self.argument, self.reports = argument, tuple(reports)
        self.number = 0  # number of the last request
        self.folder = Path(tempfile.mkdtemp(prefix="attest-kernel-"))  # which the kernel process may write to
        # Not a TemporaryDirectory: before Python 3.12.3, its cleaning sets modes through links.
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self._process: subprocess.Popen | None = None
        self._owner = 0
        self._inputs: tuple[list[int], Sequence[torch.Tensor]] = ([], ())  # offsets and bytes of the last inputs
        self.reads = False  # whether outputs on a CPU are read where they lie

    def ask(
        self, header: dict, blocks: Sequence[torch.Tensor] = (), limit: float | None = None
    ) -> tuple[dict, list[torch.Tensor]]:
        """Return the answer to a question.

        limit: seconds; None if the caller's own watchdog limits the time. Raises KernelEnded; the
        next question then goes to a new process.
        """
        until = None if limit is None else time.monotonic() + limit
        with self._named_end():
            self._start(until)
            return self._asked(header, blocks, until)

    def declare(self, limit: float | None) -> dict:
        """Return the declarations of the file."""
        until = None if limit is None else time.monotonic() + limit
        with self._named_end():
            self._start(until)
            return self.hello

    def changed(self) -> dict[int, torch.Tensor]:
        """Return the last inputs that differ from what was given: number -> bytes."""
        if self._process is None:
            return {}
        return self._shared.changed(*self._inputs)

    def read(self, address: int, size: int) -> torch.Tensor:
        """Return bytes of the kernel process. Raises KernelEnded."""
        with self._named_end():
            return reading.read(self.pid, address, size)

    def _asked(
        self, header: dict, blocks: Sequence[torch.Tensor], until: float | None
    ) -> tuple[dict, list[torch.Tensor]]:
        self.number += 1
        if blocks:
            addresses = [memory["address"] for memory in header["memories"]]
            try:
                self._inputs = self._shared.place(addresses, blocks), blocks
            except OSError as error:
                words = f"the memory that it shares with the judging process cannot grow: {error.strerror}"
                raise KernelEnded(words, printed=self._printed()) from None
            for memory, offset in zip(header["memories"], self._inputs[0], strict=True):
                memory["offset"] = offset
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the cause of death is found below
            wire.send(
                self._connection,
                {"n": self.number, "shared": len(self._shared.memory), "direct": self.reads, **header},
            )
        answer, packed = wire.receive(self._connection, lambda: self._wait(until))
        if answer.get("n") != self.number:
            raise wire.Garbled(f"an answer to question {str(answer.get('n'))[:20]}")
        if answer.get("over"):  # its GPU context is dead, so the next question needs another process
            self.end()
        return answer, packed

    @contextlib.contextmanager
    def _named_end(self) -> Iterator[None]:
        try:
            yield
        except wire.Garbled as error:
            self.end()
            raise KernelEnded(f"it answers with {error}, should be a message") from None
        except (wire.Closed, ConnectionResetError):
            raise self._ended() from None
        except BaseException:
            self.end()
            raise

    def end(self) -> int:
        """End the process and its group. Returns its status."""
        if self._process is None:
            return 0
        process, self._process = self._process, None
        os.close(self._connection)
        self._shared.close()
        if self._owner != os.getpid():  # a fork must not end its parent's process
            return 0
        for tell in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                tell(process.pid, signal.SIGKILL)
        return _status(process)

    def _start(self, until: float | None) -> None:
        # A fork must not use the process of its parent.
        if self._process is not None and self._owner != os.getpid():
            self.end()
        if self._process is not None:
            return
        sandbox.hide_memory()
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
        if hasattr(socket, "SO_PASSCRED"):  # the system then says which process has sent a message
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._connection, self._shared = ours.detach(), Shared()
        way = sandbox.chosen()
        libraries = surroundings.libraries(self.argument)
        cache = surroundings.own_cache(self.argument, self.folder)
        seen = needs.view_of(self.argument, [str(self.folder), str(cache)], self.reports, libraries)
        prefix = [f"-Xpycache_prefix={sys.pycache_prefix}"] if sys.pycache_prefix else []
        connection = theirs.detach()
        boot = BOOT.format(root=str(IMPORTED_FROM), kernel=__name__.replace("process", "kernel"), connection=connection)
        command = [sys.executable, *PYTHON, *prefix, "-c", boot]
        files = [connection, self._shared.file]
        if way == sandbox.BUBBLEWRAP:
            filtered = bubblewrap.filter_file()
            command = bubblewrap.command(seen, command, filtered)
            files += [filtered] if filtered is not None else []
        # The file has no name, so the kernel cannot replace it by a link to another file.
        self._printed_to = printed = tempfile.TemporaryFile("a+b")  # noqa: SIM115
        self._process = subprocess.Popen(
            command, cwd="/", env=surroundings.variables(cache, self.folder), stdin=subprocess.DEVNULL, stdout=printed,
            stderr=printed, pass_fds=files, start_new_session=True,
        )  # fmt: skip
        for file in files:
            if file != self._shared.file:
                os.close(file)
        self._owner, self._way = os.getpid(), way
        self._watch = limits.Watch(self._process.pid, seen.writable, printed.fileno())
        facts = {
            "parent": 0 if way == sandbox.BUBBLEWRAP else os.getpid(),
            "inputs": self._shared.file,
            "argument": self.argument,
            "root": str(IMPORTED_FROM) if IN_CHECKOUT else "",
            "path_before": needs.python_path(),
            "path_after": needs.user_site(),
            "libraries": libraries,
            "way": way,
            "view": asdict(seen),
        }
        self._send_facts(facts, until)
        self.hello, _ = self._asked({"ask": "declare"}, (), until)

    def _send_facts(self, facts: dict, until: float | None) -> None:
        """Tell the process its facts. It answers once with READY, and with bytes to be found in its
        memory, before it loads anything that the plug-in could have written.
        """
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            wire.send(self._connection, facts)
        self._wait(until)
        self.pid = self._process.pid
        if hasattr(socket, "SO_PASSCRED"):
            with socket.socket(fileno=os.dup(self._connection)) as connection:
                _, more, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(struct.calcsize(CREDENTIALS)))
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
            for _, kind, data in more:
                if kind == socket.SCM_CREDENTIALS:
                    self.pid = struct.unpack(CREDENTIALS, data)[0]
        known, _ = wire.receive(self._connection, lambda: self._wait(until))
        self.reads = reading.reads(self.pid, known["address"], bytes(known["bytes"]))

    def _wait(self, until: float | None) -> None:
        """Return when there is something to read.

        Raises Closed if the process is dead, KernelEnded if the time is up.
        """
        events = select.poll()
        events.register(self._connection, select.POLLIN)
        while True:
            if excess := self._watch.excess():
                self.end()
                raise KernelEnded(excess, printed=self._printed())
            seconds = limits.INTERVAL if until is None else min(limits.INTERVAL, until - time.monotonic())
            if seconds <= 0:
                self.end()
                raise KernelEnded("it does not answer in time", printed=self._printed())
            for _, event in events.poll(1000 * seconds):
                if event & select.POLLIN:
                    return
                raise wire.Closed
            if self._process.poll() is not None and not events.poll(0):  # its children still hold the pipe
                raise wire.Closed

    def _ended(self) -> KernelEnded:
        """Return how the process ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE)
        if self._process.poll() is None:
            self.end()
            return KernelEnded("it closed its pipe", printed=self._printed())
        status = self.end()
        if self._way == sandbox.BUBBLEWRAP and os.WIFEXITED(status) and os.WEXITSTATUS(status) > 128:
            status = os.WEXITSTATUS(status) - 128  # bubblewrap passes on a signal as a shell does
        return KernelEnded(ending_of(status)[1], status, self._printed())

    def _printed(self) -> tuple[str, ...]:
        printed, most = self._printed_to.fileno(), 1 << 14
        return last_lines(os.pread(printed, most, max(0, os.fstat(printed).st_size - most)).decode(errors="replace"))


def _status(process: subprocess.Popen) -> int:
    """Return the exit status in the form of os.waitpid."""
    code = process.wait()
    return -code if code < 0 else code << 8
