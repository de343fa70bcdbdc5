"""Collects verdicts from all workers, reports them, and sets the exit status of pytest."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from flash_attest.properties.judging.plain_text import all_plain
from flash_attest.properties.judging.verdict import UNKNOWN
from flash_attest.races.sanitizer.watch import end
from flash_attest.runner.green import Group, group_of, is_green, verdict_line
from flash_attest.runner.plugin import ahead, announcing, conclusion, resume, saved, shard, sources
from flash_attest.runner.plugin.chosen import Chosen
from flash_attest.runner.plugin.environment import environment
from flash_attest.runner.plugin.folder import FolderError
from flash_attest.runner.plugin.judging import Judging
from flash_attest.runner.plugin.last_case import last_case_in
from flash_attest.runner.plugin.options import Options
from flash_attest.runner.plugin.order import by_implementation, judges
from flash_attest.runner.plugin.outcomes import (
    GPU_KEY,
    SHARD_KEY,
    died,
    judged_in,
    raised_in,
    result_of,
)
from flash_attest.runner.plugin.progress import Progress, seconds_of
from flash_attest.runner.plugin.report import INTERRUPTED, STOPPED, Report
from flash_attest.runner.plugin.resume import ResumeError
from flash_attest.runner.untrusted.entries import held

COMMAND = "FLASH_ATTEST_COMMAND"  # has the command that the user typed, unless it was pytest
LETTERS = {"refused": "r", UNKNOWN: "?", "known failure": "x"}


class Reporter:
    """The plug-in object, one for each pytest process.

    On a worker it only judges; on the controller it also reports.
    """

    def __init__(self, config: pytest.Config):
        self.config = config
        self.options = Options(config)
        self.options.check()
        self.chosen = Chosen(config, self.options)
        self.worker = self.options.worker
        self.report = Report(Path(self.options.given("report")), self._tell)
        self.judging = Judging(self.options, self.chosen, self.report.directory)
        self.progress: Progress | None = None
        self.verdict = ""  # the last line of the run
        self.undecided: dict[str, str] = {}  # test id of a law that could not be decided: why
        self.started = time.perf_counter()
        self._ahead: list = []  # processes that compile kernels before laws need them

    # --- hooks -----------------------------------------------------------------------------------

    def pytest_sessionstart(self) -> None:
        """Refuses invalid options before anything runs."""
        given = self.options.given
        if given("device") == "cuda":
            _ = self.options.device
        if given("impl") is not None or given("impl-from") or self.chosen.untrusted:
            _ = self.chosen.entries
        if given("case"):
            _ = self.judging.judge

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Select the tests of this part of the run, among those that -k and -m leave. This runs
        last, so that no part is empty because of them.
        """
        impls = {id(entry.impl) for entry in self.chosen.entries}
        # If nothing could be loaded, pytest makes one test for each law without an implementation,
        # and skips it.
        items[:] = [item for item in items if not judges(item) or id(item.callspec.params["impl"]) in impls]
        if self.options.shard:
            items[:], elsewhere, self.judging.shard_facts = shard.split(items, self.options.shard, self.options.device)
            if elsewhere:
                config.hook.pytest_deselected(items=elsewhere)
        if any(judges(item) for item in items):
            items[:] = by_implementation(items, [entry.name for entry in self.chosen.entries])

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Start the report. With workers, pytest does not call this on the controller."""
        if self.worker is None:
            self._start(item.nodeid for item in session.items if judges(item))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node, ids: list[str]) -> None:
        """Start the report. xdist calls this for each worker; all of them collect the same
        tests.
        """
        self._start(test for test in ids if judged_in(test))

    def _start(self, tests: Iterable[str]) -> None:
        """Begin the report, before the first law is judged. A run that judges nothing has none."""
        planned = {test: judged for test in tests if (judged := judged_in(test))}
        if not planned or self.report.planned or self.config.getoption("collectonly"):
            return
        try:
            _ = self.chosen.entries  # sets `elsewhere`; with workers nothing else does
            facts, kept = all_plain(self._environment(planned.keys())), []
            earlier = self._earlier(facts)
            if self.options.given("resume"):
                kept = resume.kept(resume.earlier(self.report.directory), facts)
            self.report.start(facts, len(planned), kept)
        except (FolderError, ResumeError) as error:
            raise pytest.UsageError(str(error)) from None
        for last in self.report.directory.glob("last-case-*.txt"):
            self._tell(f"an earlier run died in {last_case_in(last)}")
            last.unlink()
        decided = {(result["law"], result["impl"]) for result in kept}
        left = [judged[1:] for judged in planned.values() if judged[1:] not in decided]
        self.progress = Progress(left, earlier)
        before = sum(earlier.get(judged, 0.0) for judged in left)
        has_header = self.config.option.verbose >= 0  # pytest's, with the lines of this plug-in
        for line in [
            *([] if has_header else self._facts()),
            *announcing.announcement(left, len(kept), before, self.options, self.chosen),
        ]:
            self._tell(line, yellow=False)
        self._compile_ahead([impl for _, impl in left])

    def _earlier(self, facts: dict) -> dict[tuple[str, str], float]:
        """Return the seconds of each law in the report that this run replaces, if it judged in the
        same way.
        """
        try:
            return seconds_of(saved.read(self.report.directory), facts)
        except (saved.NoReport, OSError):
            return {}

    def _compile_ahead(self, laws_of: list[str]) -> None:
        """Compile kernels for the GPU. laws_of: the implementation of each law to judge."""
        if self.options.device == "cuda" and not self.chosen.untrusted:
            self._ahead = ahead.start(laws_of, self.options.workers)

    def _environment(self, planned: Iterable[str]) -> dict:
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
            elsewhere=self.chosen.elsewhere,
            sources={
                "the suite": sources.of_suite(),
                **{entry.name: digests[entry.file] for entry in self.chosen.plugins},
            },
            **({"shard": self.judging.shard_facts} if self.options.shard else {}),
            **({"sandbox": held()} if self.chosen.untrusted else {}),
        )

    def _tell(self, text: str, yellow: bool = True) -> None:
        """Print a sentence on the terminal, while tests run."""
        out = self.config.pluginmanager.get_plugin("terminalreporter")
        if out is not None:
            if out._tw.width_of_current_line:  # it has dots, which ensure_newline ignores
                out._tw.line()
            out.write_line(text, yellow=yellow)

    def pytest_report_header(self) -> list[str]:
        return [] if self.worker is not None or self.config.getoption("collectonly") else self._facts()

    def _facts(self) -> list[str]:
        return announcing.facts(self.options, self.chosen, self.report.directory)

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
            result = died(report, self.report.directory, self.chosen.entries, self.judging.origin_of)
        elif result is None and report.failed:
            result = raised_in(report)
        if result is not None:
            if name := result_of(report, GPU_KEY):
                self.report.environment["device_name"] = name
            if facts := result_of(report, SHARD_KEY):
                self.report.environment["shard"] = self.judging.shard_facts = facts
            self.report.add(result)
            if group_of(result, asked_for=self.options.asked_for) is Group.UNDECIDED:
                self.undecided[report.nodeid] = result["reason"]
            if self.progress and (line := self.progress.add(result)):
                self._tell(f"flash-attest: {line}", yellow=False)

    def pytest_sessionfinish(self, session, exitstatus) -> None:
        self.judging.close()
        for process in self._ahead:
            end(process)
        if self.worker is not None or not self.report.planned:
            return
        ended = INTERRUPTED if exitstatus == pytest.ExitCode.INTERRUPTED else STOPPED
        self.verdict = verdict_line(
            self.report.results,
            asked_for=self.options.asked_for,
            replayed=bool(self.options.given("case")),
            unjudged=self.report.planned - len(self.report.results),
            planned=self.report.planned,
            device=self.options.device,
            elsewhere=self.chosen.elsewhere,
        )
        self.report.finish(
            ended,
            verdict=self.verdict,
            green=self.green,
            seconds=round(time.perf_counter() - self.started, 1),
            workers=self.options.workers,
        )
        if exitstatus == pytest.ExitCode.OK and not self.green:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @property
    def green(self) -> bool:
        return is_green(self.verdict)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter):
        with conclusion.without_laws(terminalreporter):
            yield
        if self.worker is None and self.report.planned:
            self._print_end(terminalreporter)

    def _print_end(self, out: pytest.TerminalReporter) -> None:
        report = self.report
        out.ensure_newline()
        for remark in self.judging.remarks:
            out.write_line(remark, yellow=True)
        verbose = self.config.option.verbose > 0
        with conclusion.no_commands(out):
            conclusion.print_failures(report, out)
            conclusion.print_verdicts(report, out, asked_for=self.options.asked_for, verbose=verbose)
        conclusion.print_annotations(report.results, out, asked_for=self.options.asked_for)
        if trouble := report.folder.trouble:
            out.write_line(f"report: {trouble}: the verdicts above are all there is", yellow=True)
        else:
            out.write_line(
                f"report: {report.directory}/index.html (report.md, results.json); {announcing.cases(self.options)}"
            )
        if progress := self._progress():
            out.write_line(progress, yellow=True)
        if self.options.shard:
            of_all = f"{len(report.results)} of {self.judging.shard_facts.get('tests_of_all', 'all')} verdicts"
            out.write_line(f"shard {self.options.shard}: {of_all}; flash-attest merge joins the reports")

    def _progress(self) -> str:
        """Return how far the run came, if it did not reach its end."""
        facts = self.report.environment
        if facts["complete"]:
            return ""
        return f"{facts['state']}: {facts['decided']} of {facts['planned']} decided; --resume goes on from there"

    def last_line(self) -> tuple[str, bool]:
        """Return the verdict in a line, and whether it is green; ("", True) if nothing was to be
        judged.
        """
        nothing = self.config.getoption("collectonly") or self.worker is not None
        if self.options.shard and not self.report.planned and not nothing:
            return f"not green: no law is left for shard {self.options.shard}", False
        return self.verdict, self.green
