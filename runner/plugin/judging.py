"""Judges laws for the tests of one pytest process, and passes each result on with the report of its
test.
"""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from flash_attest.impls.contract.entry import Entry
from flash_attest.impls.contract.location import declared_at
from flash_attest.properties.judging.origin import Checked, Origin, OwnRun
from flash_attest.properties.judging.plain_text import all_plain
from flash_attest.properties.judging.verdict import Result
from flash_attest.runner.isolation.isolated import Isolated
from flash_attest.runner.judge import Judge, compare_with_known
from flash_attest.runner.plugin import saved
from flash_attest.runner.plugin.chosen import ENTRY, Chosen
from flash_attest.runner.plugin.conclude import conclude
from flash_attest.runner.plugin.options import Options
from flash_attest.runner.plugin.outcomes import GPU_KEY, KEY, SHARD_KEY
from flash_attest.runner.start import judge_of


class Judging:
    """Judges in this process, or in one that it starts.

    directory: the report's folder, where the case in progress is written down.
    """

    def __init__(self, options: Options, chosen: Chosen, directory: Path):
        self.options, self.chosen, self.directory = options, chosen, directory
        self.shard_facts: dict = options.shard._asdict() if options.shard else {}
        self.over = False  # whether this process can judge no more, because it has lost its GPU context
        self._judge: Judge | Isolated | None = None

    @property
    def judge(self) -> Judge | Isolated:
        """The judge, made on first use, as it needs torch."""
        if self._judge is None:
            options = self.options
            self._judge = judge_of(
                options.plan(),
                self.chosen.entries,
                self.directory,
                isolated=options.isolated,
                limit=options.case_timeout,
                limits=options.limits,
                name=options.worker_name,
                is_worker=options.worker is not None,
                keeps_streams=options.keeps_streams,
                origin_of=self.origin_of,
            )
        return self._judge

    @property
    def judge_if_made(self) -> Judge | Isolated | None:
        """The judge, or None if nothing was judged."""
        return self._judge

    def close(self) -> None:
        """End the judging process, if there is one."""
        if self._judge is not None:
            self._judge.close()

    def origin_of(self, entry: Entry) -> Origin:
        """Return how a case of this implementation can be called again, for messages and for other
        processes.
        """
        if os.environ.get(ENTRY) != "check":
            return OwnRun(entry.option)
        target = shlex.split(entry.option)[-1].removeprefix("--impl-from=") if entry.option else entry.name
        beside = [other for other in self.chosen.entries if other.option == entry.option]
        several = len(beside) + len(self.chosen.elsewhere) > 1
        return Checked(target, entry.name if entry.option and several else "", entry.option)

    def judge_for(self, item: pytest.Item):
        """Return the object that the `judge` fixture gives to a test."""

        def judged(law: str, impl, verdict: Callable[[], Result]) -> None:
            if (result := self.kept.get((law, impl.name))) is None:
                result = verdict()
                self.over |= isinstance(self.judge, Judge) and self.judge.is_over(result, self.options.device)
                compare_with_known(result, impl, self.options.device)
                result.declared_at = self._where[impl.name]
                result.made_plain()
            item.user_properties.append((KEY, all_plain(result.as_dict())))
            if name := self.judge.device_name:
                item.user_properties.append((GPU_KEY, name))
            if self.options.shard:
                item.user_properties.append((SHARD_KEY, self.shard_facts))
            conclude(result)

        def judge(law, impl) -> None:
            judged(law.name, impl, lambda: self.judge.law(law, impl))

        judge.contract = lambda impl: judged(item.originalname, impl, lambda: self.judge.contract(impl))
        return judge

    @functools.cached_property
    def _where(self) -> dict[str, str]:
        return {entry.name: declared_at(entry) for entry in self.chosen.entries}

    def keep(self, results: list[dict]) -> None:
        """Set what an earlier run decided, in the process that has read its report."""
        self.kept = {(record["law"], record["impl"]): Result.of_dict(record) for record in results}

    @functools.cached_property
    def kept(self) -> dict[tuple[str, str], Result]:
        """(law, impl) -> what an earlier run decided. The controller has put it into the new
        results.json.
        """
        if not self.options.given("resume"):
            return {}
        there = saved.read(self.directory)["results"]
        return {(record["law"], record["impl"]): Result.of_dict(record) for record in there if record["before"]}
