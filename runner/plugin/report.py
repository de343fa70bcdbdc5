"""Writes results.json, report.md and index.html, from the start of a run to its end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from flash_attest.properties.judging.plain_text import all_plain
from flash_attest.runner.causes import causes_of
from flash_attest.runner.page.run import run_page
from flash_attest.runner.plugin.folder import ANOTHER, Folder, FolderError, Pace
from flash_attest.runner.plugin.saved import FORMAT, JOURNAL, RESULTS
from flash_attest.runner.plugin.summary import summary

PAGE, SUMMARY = "index.html", "report.md"
# Values of `state` in the environment: how far the run has come, or how it ended.
RUNNING, COMPLETE, INTERRUPTED, STOPPED = "running", "complete", "interrupted", "ended early"


class Report:
    """Writes the results so far to disk, so that a run loses no verdict, however it ends.

    results.json is rewritten after each verdict as long as that takes next to no time, which is so
    in runs of ordinary size. In larger runs verdicts go to a journal in between (saved.py reads
    both). index.html is rewritten from time to time.
    """

    def __init__(self, directory: Path, tell: Callable[[str], None] = lambda text: None):
        self.directory = directory
        self.folder = Folder(directory, tell)
        self.tell = tell
        self._unmade: set[str] = set()  # files whose text could not be made, which is told once
        self.environment: dict = {}
        self.results: list[dict] = []
        self._written: list[str] = []  # each result as JSON, so that it is converted only once
        self._place: dict[tuple[str, str], int] = {}  # (law, impl) -> the index of its result
        self._planned_of: Mapping[str, Mapping[str, int]] = {}
        self._journalled = False
        self._results_pace, self._page_pace = Pace(share=0.02, free=0.5), Pace(share=0.01)

    @property
    def planned(self) -> int:
        """How many laws there were to judge; 0 before the start."""
        return self.environment.get("planned", 0)

    def start(
        self,
        environment: dict,
        planned: int,
        kept: Iterable[dict] = (),
        planned_of: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
    ) -> None:
        """Hold the folder and replace its files, so that an old page never stands beside new
        results.

        `planned`: how many laws there are to judge. `kept`: results of an earlier run, which this
        run starts with. `planned_of`: implementation -> chapter -> how many of the laws. Raises
        FolderError if the folder is in use or cannot be written to.
        """
        self.folder.take(environment["command"])
        self._planned_of = planned_of
        for result in kept:
            self._keep(result)
        progress = {"complete": False, "state": RUNNING, "decided": len(self.results), "planned": planned}
        self.environment = all_plain(environment | progress)
        self.folder.remove(PAGE)
        self.folder.remove(SUMMARY)
        self._write_results()
        if not self.folder.trouble:  # the journal is no longer needed
            self.folder.remove(JOURNAL)
            self._write_page()
        if trouble := self.folder.trouble:
            self.folder.release()
            self.environment = {}
            raise FolderError(f"--report {self.directory}: {trouble}: free some space, or {ANOTHER}")

    def add(self, *results: dict) -> None:
        """Add verdicts. They are on disk when this returns."""
        new = [result for result in map(all_plain, results) if self._keep(result)]
        if not new:
            return
        self.environment["decided"] = len(self.results)
        if self._results_pace.due() or not self.folder.has(RESULTS):  # a journal alone cannot be read
            with self._results_pace.writing():
                self._write_results()
        else:
            self.folder.append(JOURNAL, "".join(f"\n{json.dumps(result)}" for result in new))
            self._journalled = True
        if self._page_pace.due():
            with self._page_pace.writing():
                self._write_page()

    def _keep(self, result: dict) -> bool:
        """Add a result, or replace the earlier one of its law and implementation. Returns False if
        that one is equal.
        """
        place = self._place.setdefault((result["law"], result["impl"]), len(self.results))
        if place < len(self.results) and self.results[place] == result:
            return False
        self.results[place : place + 1] = [result]
        self._written[place : place + 1] = [json.dumps(result)]
        return True

    def finish(self, ended: str = STOPPED, **more: object) -> str:
        """Write all files a last time and release the folder.

        more: fields that the environment still lacks. ended: how the run ended, if some of its laws
        have no verdict. Returns why a file could not be written; "" if all are on disk.
        """
        complete = len(self.results) >= self.planned
        self.environment |= all_plain(more) | {"complete": complete, "state": COMPLETE if complete else ended}
        if left := {} if complete else self._left():
            self.environment["left"] = all_plain(left)
        try:
            self._write_results()
            self._write_made(SUMMARY, lambda: summary(self.environment, self.results))
            self._write_page()
        finally:
            self.folder.release()
        return self.folder.trouble

    def _left(self) -> dict[str, dict[str, int]]:
        """Return implementation -> chapter -> how many of its laws have no verdict."""
        decided = Counter((result["impl"], result["chapter"]) for result in self.results)
        left = {
            impl: {chapter: n - decided[impl, chapter] for chapter, n in of.items() if n > decided[impl, chapter]}
            for impl, of in self._planned_of.items()
        }
        return {impl: chapters for impl, chapters in left.items() if chapters}

    def _write_results(self) -> None:
        results = ",\n".join(self._written)
        environment = json.dumps(self.environment, indent=1)
        causes = ",\n".join(json.dumps(cause.as_dict()) for cause in causes_of(self.results))
        parts = f'"environment": {environment},\n"causes": [\n{causes}\n],\n"results": [\n{results}\n]'
        written = self.folder.write(RESULTS, f'{{"format": {FORMAT},\n{parts}}}\n')
        if written and self._journalled:
            self.folder.remove(JOURNAL)  # also what it lacks, if it could not be written
            self._journalled = False

    def _write_page(self) -> None:
        """Write index.html, which needs no network and no other file."""
        self._write_made(PAGE, lambda: run_page(self.results, self.environment))

    def _write_made(self, name: str, text: Callable[[], str]) -> None:
        """Write what is made of the results. A mistake in making it must not cost a verdict."""
        try:
            made = text()
        except Exception as error:
            if name not in self._unmade:
                self._unmade.add(name)
                self.tell(f"{self.directory / name} cannot be made: {type(error).__name__}: {error}")
        else:
            self.folder.write(name, made)
