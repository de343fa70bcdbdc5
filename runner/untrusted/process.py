"""The judging side's handle on a kernel process: it starts, asks, ends and replaces the process."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from flash_attest.emulator.build_cache import cache_folder
from flash_attest.emulator.errors import EmulatorError
from flash_attest.places import IMPORTED_FROM, IN_CHECKOUT
from flash_attest.runner.isolation.endings import ending_of, last_lines
from flash_attest.runner.untrusted import sandbox, wire

PATIENCE = 1.0  # seconds for a process that has closed its pipe to end
LOOK = 0.2  # seconds between looks at the process while it is asked
MOST_PRINTED = 1 << 24  # bytes of output, after which the file is emptied
PIPE = 1 << 20  # bytes that a pipe holds
HIDDEN = ("PYTEST_", "HYPOTHESIS", "FLASH_ATTEST", "ATTEST_")  # environment variables that reveal what is judged


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

    def __init__(self, argument: str):
        self.argument = argument
        self.number = 0  # number of the last request
        self._folder = tempfile.TemporaryDirectory(prefix="attest-kernel-")
        self._process: subprocess.Popen | None = None
        self._owner = 0

    @property
    def folder(self) -> Path:
        """Return the folder that the kernel process may write to."""
        return Path(self._folder.name)

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

    def _asked(
        self, header: dict, blocks: Sequence[torch.Tensor], until: float | None
    ) -> tuple[dict, list[torch.Tensor]]:
        self.number += 1
        with contextlib.suppress(BrokenPipeError):  # the cause of death is found below
            wire.send(self._requests, {"n": self.number, **header}, blocks)
        answer, packed = wire.receive(self._answers, lambda: self._wait(until))
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
        except wire.Closed:
            raise self._ended() from None
        except BaseException:
            self.end()
            raise

    def end(self) -> int:
        """End the process and its group. Returns its status."""
        if self._process is None:
            return 0
        process, self._process = self._process, None
        os.close(self._requests)
        os.close(self._answers)
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
        request_read, self._requests = os.pipe()
        self._answers, answer_write = os.pipe()
        for pipe in (self._requests, self._answers):
            with contextlib.suppress(OSError):  # the user's limit for pipes is reached
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE)
        caches, variables = _caches(self.folder)
        facts = {
            "parent": os.getpid(),
            "requests": request_read,
            "answers": answer_write,
            "argument": self.argument,
            "cwd": os.getcwd(),
            "root": str(IMPORTED_FROM) if IN_CHECKOUT else "",
            "folder": str(self.folder),
            "caches": caches,
        }
        # The file has no name, so the kernel cannot replace it by a link to another file.
        self._printed_to = printed = tempfile.TemporaryFile("a+b")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__.replace("process", "kernel"), json.dumps(facts)],
            cwd=IMPORTED_FROM, env=variables, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed,
            pass_fds=(request_read, answer_write), start_new_session=True,
        )  # fmt: skip
        os.close(request_read)
        os.close(answer_write)
        self._owner = os.getpid()
        self.hello, _ = self._asked({"ask": "declare"}, (), until)

    def _wait(self, until: float | None) -> None:
        """Return when there is something to read.

        Raises Closed if the process is dead, KernelEnded if the time is up.
        """
        events = select.poll()
        events.register(self._answers, select.POLLIN)
        while True:
            self._bound_printed()
            seconds = LOOK if until is None else min(LOOK, until - time.monotonic())
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
        return KernelEnded(ending_of(status)[1], status, self._printed())

    def _bound_printed(self) -> None:
        """Empty the file for what is printed if it is large. The process appends to it."""
        if os.fstat(self._printed_to.fileno()).st_size > MOST_PRINTED:
            os.ftruncate(self._printed_to.fileno(), 0)

    def _printed(self) -> tuple[str, ...]:
        printed, most = self._printed_to.fileno(), 1 << 14
        return last_lines(os.pread(printed, most, max(0, os.fstat(printed).st_size - most)).decode(errors="replace"))


def _status(process: subprocess.Popen) -> int:
    """Return the exit status in the form of os.waitpid."""
    code = process.wait()
    return -code if code < 0 else code << 8


def _caches(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return folders for compiled files that no trusted run uses, and variables that name them."""
    try:
        base = cache_folder() / "untrusted"
        base.mkdir(mode=0o700, exist_ok=True)
    except (EmulatorError, OSError):
        base = folder
    variables = {name: value for name, value in os.environ.items() if not name.startswith(HIDDEN)}
    paths = [
        path
        for path in variables.pop("PYTHONPATH", "").split(os.pathsep)
        if path and Path(path).resolve() != IMPORTED_FROM
    ]
    if paths:
        variables["PYTHONPATH"] = os.pathsep.join(paths)
    named = {
        "FLASH_ATTEST_CACHE": base, "XDG_CACHE_HOME": base, "TRITON_CACHE_DIR": base / "triton",
        "TORCHINDUCTOR_CACHE_DIR": base / "inductor", "TORCH_EXTENSIONS_DIR": base / "extensions",
        "NUMBA_CACHE_DIR": base / "numba", "CUDA_CACHE_PATH": base / "nv", "TMPDIR": folder,
    }  # fmt: skip
    if "PYTHONPYCACHEPREFIX" in variables:
        named["PYTHONPYCACHEPREFIX"] = base / "modules"
    quiet = {"KINETO_LOG_LEVEL": "99"}  # silences the profiler that observes operators
    return [str(base)], variables | quiet | {name: str(path) for name, path in named.items()}
