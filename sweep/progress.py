"""The output of a running sweep: a bar on a terminal, lines in a log, and each new finding."""

from __future__ import annotations

import math
import time

from rich import progress
from rich.console import Console
from rich.markup import escape

from flash_attest.sweep.store import Store

LOG_EVERY = 60.0  # seconds
COUNT_EVERY = 10.0  # seconds: counting reads every run of the session


class Progress:
    """The output of one session. Use it as a context manager."""

    def __init__(self, console: Console, session: str, seconds: float, most: int):
        self.console, self.session, self.seconds, self.most = console, session, seconds, most
        self.began, self.logged = time.monotonic(), time.monotonic()
        self._counts, self._counted = (0, 0.0), -math.inf
        self._told: set[tuple] = set()
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"), progress.BarColumn(), progress.TimeElapsedColumn(),
            console=console, disable=not console.is_terminal, transient=True,
        )  # fmt: skip
        self._task = self._bar.add_task("starting", total=seconds if math.isfinite(seconds) else most or None)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def tell(self, text: str, style: str = "yellow") -> None:
        """Print a sentence."""
        self.console.print(f"[{style}]{escape(text)}[/]", highlight=False, soft_wrap=True)

    def seen_before(self, store: Store) -> None:
        """Record the findings that the file already has, so that `show` does not print them."""
        self._told |= {finding.place for finding in store.findings()}

    def show(self, store: Store, last: bool = False) -> None:
        """Print new findings and remarks, update the bar, and print counts from time to time."""
        runs, repeats = self._count(store, last)
        spent, findings = time.monotonic() - self.began, store.findings()
        for finding in findings:
            style = "yellow" if finding.known else "bold red"
            self._tell_once(finding.place, f"{finding.impl}, {finding.layer}: {finding.headline}", style)
        for name, layer, why in store.noted(self.session, "given_up"):
            self._tell_once((name, layer), f"{name}, {layer}: drawn no more: {why}")
        for remark in store.noted(self.session, "remarks"):
            self._tell_once((remark,), remark)
        words = f"{runs} runs ({60 * runs / max(spent, 1e-3):.0f} a minute), {repeats:.0f} repeats, {len(findings)} findings"
        self._bar.update(self._task, description=words, completed=spent if math.isfinite(self.seconds) else runs)
        if not self.console.is_terminal and time.monotonic() - self.logged >= LOG_EVERY:
            self.logged = time.monotonic()
            self.console.print(f"{spent / 60:.0f} min: {words}", highlight=False, soft_wrap=True)

    def _tell_once(self, what: tuple, text: str, style: str = "yellow") -> None:
        if what not in self._told:
            self._told.add(what)
            self.tell(text, style)

    def _count(self, store: Store, last: bool) -> tuple[int, float]:
        """Return the numbers of runs and repeats of this session."""
        if last or time.monotonic() - self._counted >= COUNT_EVERY:
            sql = "SELECT count(*), total(repeats) FROM runs WHERE session = ? AND verdict <> ''"
            self._counts, self._counted = tuple(store.rows(sql, self.session)[0]), time.monotonic()
        return self._counts
