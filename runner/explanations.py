"""Keeps the failures of a run that have their whole message, for all of its workers.

A worker appends each to a file in the report's folder, and reads what others have appended. Which
laws then fail does not depend on it, only how long their messages are.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from flash_attest.properties.judging.explained import Explained
from flash_attest.properties.judging.verdict import Result

FILE = "explained.jsonl"


class Explanations:
    """Explained failures by implementation.

    file: where workers share them; None if there is one process.
    """

    def __init__(self, file: Path | None = None):
        self.file = file
        self._read = 0  # bytes of the file
        self._by_impl: dict[str, list[Explained]] = {}

    def of(self, impl: str) -> list[Explained]:
        """Return the failures of an implementation that are explained by now."""
        self._look()
        return [*self._by_impl.get(impl, ())]

    def add(self, result: Result) -> None:
        """Add a failure, unless it explains no cause."""
        if explained := Explained.of(result.as_dict()):
            self._keep(result.impl, explained)
            line = json.dumps([result.impl, asdict(explained)])
            if self.file is not None:
                try:
                    with open(self.file, "a", encoding="utf-8") as file:
                        file.write(f"{line}\n")
                except OSError:  # the folder is gone, or the disk is full: others explain it again
                    self.file = None

    def _keep(self, impl: str, explained: Explained) -> None:
        known = self._by_impl.setdefault(impl, [])
        if explained not in known:
            known.append(explained)

    def _look(self) -> None:
        """Read what other workers have appended since the last time."""
        try:
            with open(self.file, "rb") as file:
                file.seek(self._read)
                *lines, _ = file.read().split(b"\n")  # the last line is empty, or is being written
        except (OSError, TypeError):
            return
        self._read += sum(len(line) + 1 for line in lines)
        for line in lines:
            try:
                impl, fields = json.loads(line)
                self._keep(impl, Explained.of_dict(fields))
            except (ValueError, TypeError, KeyError):  # it was cut, as the disk was full
                continue
