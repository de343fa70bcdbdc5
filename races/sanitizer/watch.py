"""Runs a program under tools of compute-sanitizer.

All tools run in parallel, because most of their time is the start of Python.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from flash_attest.races.sanitizer.parse import Report, parse
from flash_attest.races.sanitizer.tools import Tool, command

LOGS = "FLASH_ATTEST_SANITIZER_LOGS"  # an environment variable: the folder in which to keep the logs, if any
POLL = 0.2  # seconds
LAST = 3  # how many lines of the output are quoted


@dataclass(frozen=True)
class Watched:
    """The result of running a program under one tool.

    status: its exit status; None if it was ended at the limit.
    """

    tool: Tool
    report: Report
    status: int | None
    printed: str
    seconds: float

    @property
    def undecided(self) -> str:
        """The reason why the absence of findings means nothing; "" if there is none."""
        tool, ended = self.tool.value, f"with exit status {self.status}: {self._last}"
        if self.status is None:
            return f"{tool} did not end within {self.seconds:.0f} s"
        if self.refuses_device:
            return f"{tool} does not run on this GPU: {self.report.complaints[0]}"
        if self.report.unread:
            return f"{tool} reports what cannot be read: {self.report.unread[0]}"
        if self.report.reported is None:
            return f"{tool} ended without a summary, {ended}"
        if self.status:
            return f"under {tool} the process ended {ended}"
        if self.report.complaints and not self.report.findings:
            return f"{tool} may not have watched all: {self.report.complaints[0]}"
        return ""

    @property
    def refuses_device(self) -> bool:
        """True if the tool does not run on this GPU, or not in this virtual machine."""
        return any("not supported" in complaint for complaint in self.report.complaints)

    @property
    def _last(self) -> str:
        """The tool's message about itself, then the last lines of the output."""
        lines = (line.strip() for line in self.printed.splitlines()[-LAST:])
        return "; ".join(dict.fromkeys([*self.report.complaints[:1], *filter(None, lines)]))


def watch(
    program: str,
    target: list[str],
    kernels: Iterable[str],
    tools: Iterable[Tool] = tuple(Tool),
    limit: float = 180.0,
    alive: Callable[[], None] = lambda: None,
) -> list[Watched]:
    """Run `target` once under each tool, in parallel.

    program: the path of compute-sanitizer. limit: seconds for all tools together.

    alive: called several times a second while they run.
    """
    kernels, began = list(kernels), time.perf_counter()
    with _folder() as folder, contextlib.ExitStack() as ends:
        # Start the program once under each tool.
        running = {}
        for tool in tools:
            log, printed = folder / f"{tool.value}.log", ends.enter_context((folder / f"{tool.value}.txt").open("wb"))
            process = subprocess.Popen(
                command(program, tool, kernels, log, limit, target),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                env={**os.environ, **tool.environment},
                start_new_session=True,  # to end it together with its children
            )
            ends.callback(end, process)
            running[tool] = process
        # Wait for all of them, or until the limit.
        seconds: dict[Tool, float] = {}
        while len(seconds) < len(running) and time.perf_counter() - began < limit:
            alive()
            time.sleep(POLL)
            ended = [tool for tool, process in running.items() if process.poll() is not None]
            seconds |= {tool: time.perf_counter() - began for tool in ended if tool not in seconds}
        # End the processes that still run, and read the logs.
        statuses = {tool: process.poll() for tool, process in running.items()}
        for process in running.values():
            end(process)
        whole = time.perf_counter() - began
        return [_watched(tool, folder, status, seconds.get(tool, whole)) for tool, status in statuses.items()]


def _watched(tool: Tool, folder: Path, status: int | None, seconds: float) -> Watched:
    log = folder / f"{tool.value}.log"
    printed = (folder / f"{tool.value}.txt").read_text(encoding="utf-8", errors="replace")
    # Before it opens the log, the tool prints.
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else printed
    return Watched(tool, parse(text, tool), status, printed, seconds)


@contextlib.contextmanager
def _folder():
    """Make a folder for the logs: a new folder in LOGS, which is kept, or a temporary one."""
    if parent := os.environ.get(LOGS):
        Path(parent).mkdir(parents=True, exist_ok=True)
        yield Path(tempfile.mkdtemp(prefix=f"{time.strftime('%H%M%S')}-", dir=parent))
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def end(process: subprocess.Popen) -> None:
    """If a process that leads a session still runs, end it and all processes that it started."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
