"""The pytest plug-in: collects verdicts from all workers, reports them, and sets the exit status."""

from __future__ import annotations

import functools
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from rich.console import Console

from flash_attest.impls.contract.registry import Entry
from flash_attest.properties.judging.origin import Checked, Origin, OwnRun
from flash_attest.properties.judging.plain_text import all_plain
from flash_attest.properties.judging.verdict import UNKNOWN, Result
from flash_attest.races.sanitizer.watch import end
from flash_attest.runner.green import not_green
from flash_attest.runner.isolation.isolated import Isolated
from flash_attest.runner.judge import Judge, compare_with_known
from flash_attest.runner.plugin import ahead, resume, saved, shard, sources, times
from flash_attest.runner.plugin.chosen import ENTRY, Chosen
from flash_attest.runner.plugin.conclude import conclude
from flash_attest.runner.plugin.folder import FolderError
from flash_attest.runner.plugin.last_case import last_case_in
from flash_attest.runner.plugin.options import Options
from flash_attest.runner.plugin.order import by_implementation, judges
from flash_attest.runner.plugin.outcomes import (
    GPU_KEY,
    KEY,
    SHARD_KEY,
    died,
    judged_in,
    raised_in,
    result_of,
)
from flash_attest.runner.plugin.report import INTERRUPTED, STOPPED, Report, environment, print_table
from flash_attest.runner.plugin.resume import ResumeError
from flash_attest.runner.start import judge_of
from flash_attest.runner.untrusted.entries import header

COMMAND = "FLASH_ATTEST_COMMAND"  # what people typed, where that was not pytest
LETTERS = {"refused": "r", UNKNOWN: "?", "known failure": "x"}


class Reporter:
    """One for each pytest process. On a worker it only judges; on the controller it also writes."""

    def __init__(self, config: pytest.Config):
        self.config = config
        self.options = Options(config)
        self.options.check()
        self.chosen = Chosen(config, self.options)
        self.worker = self.options.worker
        self.report = Report(Path(self.options.given("report")), self._tell)
        self.shard_facts: dict = self.options.shard._asdict() if self.options.shard else {}
        self.started = time.perf_counter()
        self._judge: Judge | Isolated | None = None
        self._ahead: list = []  # processes that compile kernels before laws need them

    @property
    def judge(self) -> Judge | Isolated:
        """Made on first use, as it needs torch."""
        if self._judge is None:
            options = self.options
            self._judge = judge_of(
                options.plan(),
                self.chosen.entries,
                self.report.directory,
                isolated=options.isolated,
                limit=options.case_timeout,
                name=options.worker_name,
                is_worker=self.worker is not None,
                keeps_streams=options.keeps_streams,
                origin_of=self.origin_of,
            )
        return self._judge

    def origin_of(self, entry: Entry) -> Origin:
        """The way back to a case of this implementation, for messages and for other processes."""
        if os.environ.get(ENTRY) != "check":
            return OwnRun(entry.option)
        target = shlex.split(entry.option)[-1].removeprefix("--impl-from=") if entry.option else entry.name
        beside = [other for other in self.chosen.entries if other.option == entry.option]
        return Checked(target, entry.name if entry.option and len(beside) > 1 else "", entry.option)

    def judge_for(self, item: pytest.Item):
        """What the `judge` fixture gives to one test."""

        def judged(law: str, impl, verdict: Callable[[], Result]) -> None:
            if (result := self.kept.get((law, impl.name))) is None:
                result = verdict()
                compare_with_known(result, impl)
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
    def kept(self) -> dict[tuple[str, str], Result]:
        """(law, impl) -> what an earlier run has decided, which the controller has put into the new results.json."""
        if not self.options.given("resume"):
            return {}
        there = saved.read(self.report.directory)["results"]
        return {(record["law"], record["impl"]): Result.of_dict(record) for record in there if record["before"]}

    # --- hooks ----------------------------------------------------------------------------------------------------------

    def pytest_sessionstart(self) -> None:
        """Refuses invalid options before anything runs."""
        given = self.options.given
        if given("device") == "cuda":
            _ = self.options.device
        if given("impl") is not None or given("impl-from") or self.chosen.untrusted:
            _ = self.chosen.entries
        if given("case"):
            _ = self.judge

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Last, so that what -k and -m leave is split, and no part of it is empty by their choice."""
        impls = {id(entry.impl) for entry in self.chosen.entries}
        # Where nothing could be loaded, pytest makes one test of each law that gets no implementation, and skips it.
        items[:] = [item for item in items if not judges(item) or id(item.callspec.params["impl"]) in impls]
        if self.options.shard:
            items[:], elsewhere, self.shard_facts = shard.split(items, self.options.shard, self.options.device)
            if elsewhere:
                config.hook.pytest_deselected(items=elsewhere)
        if any(judges(item) for item in items):
            items[:] = by_implementation(items, [entry.name for entry in self.chosen.entries])

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Not called where workers collect."""
        if self.worker is None:
            self._start(item.nodeid for item in session.items if judges(item))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node, ids: list[str]) -> None:
        """Called for each worker; all of them collect the same."""
        self._start(test for test in ids if judged_in(test))

    def _start(self, tests: Iterable[str]) -> None:
        """Begin the report, before the first law is judged. A run that judges nothing has none."""
        planned = set(tests)
        if not planned or self.report.planned or self.config.getoption("collectonly"):
            return
        try:
            facts, kept = all_plain(self._environment(planned)), []
            if self.options.given("resume"):
                kept = resume.kept(resume.earlier(self.report.directory), facts)
            self.report.start(facts, len(planned), kept)
        except (FolderError, ResumeError) as error:
            raise pytest.UsageError(str(error)) from None
        for last in self.report.directory.glob("last-case-*.txt"):
            self._tell(f"an earlier run died in {last_case_in(last)}")
            last.unlink()
        decided = {(result["law"], result["impl"]) for result in kept}
        left = [judged[2] for test in planned if (judged := judged_in(test)) and judged[1:] not in decided]
        self._compile_ahead(left)

    def _compile_ahead(self, laws_of: list[str]) -> None:
        """On a GPU. laws_of: the implementation of each law that is to be judged."""
        if self.options.device == "cuda" and not self.chosen.untrusted:
            self._ahead = ahead.start(laws_of, self.options.workers)

    def _environment(self, planned: set[str]) -> dict:
        given = self.options.given
        digests = {file: sources.of_plugin(file) for file in {entry.file for entry in self.chosen.plugins}}
        return environment(
            self.options.device,
            seed=self.options.seed,
            profile=self.options.profile_name,
            cases_per_law=self.options.profile.cases,
            repeats=self.options.repeats,
            command=os.environ.get(COMMAND) or shlex.join(["pytest", *map(str, self.config.invocation_params.args)]),
            options={name: given(name.replace("_", "-")) for name in resume.OPTIONS},
            machine=resume.machine(self.options.device),
            tests=resume.digest_of(planned),
            sources={
                "the suite": sources.of_suite(),
                **{entry.name: digests[entry.file] for entry in self.chosen.plugins},
            },
            **({"shard": self.shard_facts} if self.options.shard else {}),
        )

    def _tell(self, text: str) -> None:
        """A sentence on the terminal, while tests run."""
        out = self.config.pluginmanager.get_plugin("terminalreporter")
        if out is not None:
            out.ensure_newline()
            out.write_line(text, yellow=True)

    def pytest_report_header(self) -> list[str]:
        if self.worker is not None or self.config.getoption("collectonly"):
            return []
        part = f" shard {self.options.shard} of the laws" if self.options.shard else ""
        return [
            f"flash-attest: judges{part} on {self.options.device}, profile {self.options.profile_name} "
            f"({self.options.profile.cases} cases a law), seed {self.options.seed}, report in {self.report.directory}/",
            *self._not_isolated(),
            *([header()] if self.chosen.untrusted else []),
        ]

    def _not_isolated(self) -> list[str]:
        if self.options.isolated:
            return []
        why = " (the plug-ins use CUDA when they are imported)" if self.options.may_isolate else ""
        return [f"flash-attest: laws are judged in the pytest process, which a crash ends{why}"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report):
        result = result_of(report)
        if report.when != "call" or result is None or not report.skipped:
            return None
        verdict = "known failure" if hasattr(report, "wasxfail") else result["verdict"]
        return verdict, LETTERS.get(verdict, "s"), (verdict.upper(), {"yellow": True})

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem, report, sched) -> None:
        report.attest_worker = report.node.gateway.id

    def pytest_runtest_logreport(self, report) -> None:
        if self.worker is not None:
            return
        result = result_of(report) if report.when == "call" else None
        if hasattr(report, "attest_worker"):
            result = died(report, self.report.directory, self.chosen.entries, self.origin_of)
        elif result is None and report.failed:
            result = raised_in(report)
        if result is not None:
            if name := result_of(report, GPU_KEY):
                self.report.environment["device_name"] = name
            if facts := result_of(report, SHARD_KEY):
                self.report.environment["shard"] = self.shard_facts = facts
            self.report.add(result)

    def pytest_sessionfinish(self, session, exitstatus) -> None:
        if self._judge is not None:
            self._judge.close()
        for process in self._ahead:
            end(process)
        if self.worker is not None or not self.report.planned:
            return
        ended = INTERRUPTED if exitstatus == pytest.ExitCode.INTERRUPTED else STOPPED
        self.report.finish(ended, seconds=round(time.perf_counter() - self.started, 1), workers=self.options.workers)
        if exitstatus == pytest.ExitCode.OK and self._not_green():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter, exitstatus) -> None:
        if self.worker is not None:
            return
        out = terminalreporter
        if not self.report.planned:
            if self.options.shard and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
                out.write_line(f"not green: no law is left for shard {self.options.shard}", yellow=True)
            return
        for remark in getattr(self._judge, "remarks", ()):
            out.write_line(remark, yellow=True)
        out.section("verdicts")
        console = Console(
            file=sys.stdout, width=max(130, out._tw.fullwidth), force_terminal=out._tw.hasmarkup, soft_wrap=True
        )
        print_table(self.report, console)
        out.write_line(times.sentence(self.report.results, self.report.environment))
        if trouble := self.report.folder.trouble:
            out.write_line(f"report: {trouble}: the verdicts above are all there is", yellow=True)
        else:
            out.write_line(f"report: {self.report.directory}/index.html and results.json")
        if progress := self._progress():
            out.write_line(progress, yellow=True)
        if self.options.shard:
            of_all = f"{len(self.report.results)} of {self.shard_facts.get('tests_of_all', 'all')} verdicts"
            out.write_line(f"shard {self.options.shard}: {of_all}; flash-attest merge joins the reports")
        if reason := self._not_green():
            out.write_line(f"not green: {reason}", yellow=True)

    def _progress(self) -> str:
        """How far the run came, if not to its end."""
        facts = self.report.environment
        if facts["complete"]:
            return ""
        return f"{facts['state']}: {facts['decided']} of {facts['planned']} decided; --resume goes on from there"

    def _not_green(self) -> str:
        given = self.options.given
        asked_for = bool(given("impl") or given("impl-from"))
        if not self.report.environment["complete"]:
            return f"{self.report.planned - len(self.report.results)} of {self.report.planned} were not judged"
        return not_green(self.report.results, asked_for=asked_for, replayed=bool(given("case")))
