"""Traces all launches of a process and its children into a folder (`flash-attest emulate --trace`).

Each process appends to its own files, so the findings of a killed process are kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from flash_attest.emulator.observation import Observation
from flash_attest.emulator.runtime.watch import LIMIT, watching
from flash_attest.races.finding import Finding, merge

OPTIONS = "options.json"
_recorder: Recorder | None = None


@dataclass
class Recorded:
    """The distinct findings of all processes, their tests by key, and the number of launches."""

    findings: list[Finding] = field(default_factory=list)
    tests: dict[tuple, list[str]] = field(default_factory=dict)
    launches: int = 0

    def add(self, finding: Finding, test: str) -> None:
        merge(self.findings, [finding])
        tests = self.tests.setdefault(finding.key, [])
        if test and test not in tests:
            tests.append(test)


class Recorder:
    """Switches tracing of this process on and off."""

    def __init__(self, folder: Path, seed: int = 0, limit: float = LIMIT):
        self.folder, self.seed, self.limit = folder, seed, limit
        self.thread = threading.get_ident()  # tracing must be switched on and off in the same thread
        self._block: contextlib.ExitStack | None = None

    def resume(self) -> None:
        self._block = contextlib.ExitStack()
        self._block.enter_context(watching(self._observe, self.seed, 0.0, self.limit))

    def pause(self) -> None:
        if self._block is not None:
            self._block.close()
        self._block = None

    def _observe(self, observations: list[Observation]) -> None:
        """Record a launch and its observations.

        A forked process has its own process id, and so its own files.
        """
        with (self.folder / f"{os.getpid()}.launches").open("ab") as file:
            file.write(b".")
        if observations:
            test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
            with (self.folder / f"{os.getpid()}.findings").open("ab") as file:
                for observation in observations:
                    file.write(pickle.dumps((Finding.of(observation), test)))


def start(folder: str | Path) -> None:
    """Trace the launches of this process from now on, with the options in the folder."""
    global _recorder
    if _recorder is None:
        folder = Path(folder)
        options = json.loads((folder / OPTIONS).read_text()) if (folder / OPTIONS).exists() else {}
        _recorder = Recorder(folder, **options)
        _recorder.resume()


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Stop recording in this block, so that the process can trace for itself."""
    recorder = _recorder
    if recorder is None:
        yield
        return
    if threading.get_ident() != recorder.thread:
        raise RuntimeError(
            "this process is traced from another thread: call trace there, or run the program without --trace"
        )
    recorder.pause()
    try:
        yield
    finally:
        recorder.resume()


def read(folder: Path) -> Recorded:
    """Read the records of all processes."""
    recorded = Recorded()
    for path in sorted(folder.glob("*.findings")):
        # A file ends with EOFError, or with a truncated record.
        with path.open("rb") as file, contextlib.suppress(EOFError, pickle.UnpicklingError):
            while True:
                recorded.add(*pickle.load(file))
    recorded.launches = sum(path.stat().st_size for path in folder.glob("*.launches"))
    return recorded
