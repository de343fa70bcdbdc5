"""Collects verdicts from all workers, reports them, and sets the exit status of pytest."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from flash_attest.properties.cases.kinds import MOST_CASES
from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.plain_text import all_plain, plain
from flash_attest.properties.judging.verdict import FAIL, UNKNOWN
from flash_attest.properties.machine.gpus import emulated_on
from flash_attest.races.sanitizer.watch import end
from flash_attest.runner.explanations import FILE as EXPLANATIONS
from flash_attest.runner.green import Group, concluded, group_of, is_green
from flash_attest.runner.isolation.leftovers import end_those_of_imports
from flash_attest.runner.plugin import ahead, announcing, conclusion, resume, shard, unjudged
from flash_attest.runner.plugin.aside import KEY as ASIDE_KEY
from flash_attest.runner.plugin.aside import Aside
from flash_attest.runner.plugin.chosen import Chosen
from flash_attest.runner.plugin.facts import Facts
from flash_attest.runner.plugin.folder import FolderError
from flash_attest.runner.plugin.interrupts import Interrupts
from flash_attest.runner.plugin.judging import Judging
from flash_attest.runner.plugin.last_case import last_case_in
from flash_attest.runner.plugin.options import Options
from flash_attest.runner.plugin.order import by_implementation, judges
from flash_attest.runner.plugin.outcomes import (
    GPU_KEY,
    SHARD_KEY,
    by_chapter,
    died,
    judged_in,
    raised_in,
    result_of,
)
from flash_attest.runner.plugin.progress import Progress, seconds_of
from flash_attest.runner.plugin.replacing import AGAIN
from flash_attest.runner.plugin.report import INTERRUPTED, STOPPED, Report
from flash_attest.runner.plugin.resume import ResumeError

LETTERS = {"refused": "r", UNKNOWN: "?", "known failure": "x"}


class Reporter:
    """The plug-in object, one for each pytest process.

    On a worker it only judges; on the controller it also reports.
    """

    def __init__(self, config: pytest.Config, interrupts: Interrupts):
        self.config = config
        self.interrupts = interrupts
        self.options = Options(config)
        self.options.check()
        self.chosen = Chosen(config, self.options)
        self.worker = self.options.worker
        self.report = Report(Path(self.options.given("report")), self.tell)
        self.judging = Judging(self.options, self.chosen, self.report.directory)
        self.facts = Facts(config, self.options, self.chosen, self.report.directory)
        self.aside = Aside()
        self.progress: Progress | None = None
        self.verdict = ""  # the last line of the run
        self.undecided: dict[str, str] = {}  # test id of a law without a verdict that counts: why
        self._first: dict[str, str] = {}  # an implementation -> the id of its first test
        self.started = time.perf_counter()
        self.interrupted = False
        self.shown: dict | None = None  # the failure whose message was printed as soon as it was known
        self._ahead: list = []  # processes that compile kernels before laws need them

    # --- hooks -----------------------------------------------------------------------------------

    def pytest_sessionstart(self) -> None:
        """Refuses invalid options before anything runs."""
        given = self.options.given
        if given("device") == "cuda":
            _ = self.options.device
        if given("impl") is not None or given("impl-from") or self.chosen.untrusted:
            self.config.args = unjudged.with_contract(self.config.args, self.chosen.entries)
        elif self.config.hook.pytest_attention_impls.get_hookimpls():
            self.config.args = unjudged.with_contract(self.config.args, self.chosen.plugins)
        if given("case"):
            _ = self.judging.judge
        if given("resume") and self.worker is None and not self.config.getoption("collectonly"):
            try:
                _ = self.options.earlier or resume.earlier(self.report.directory)  # which says why there is none
            except ResumeError as error:
                raise pytest.UsageError(str(error)) from None

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]):
        """Select the tests of this part of the run, among those that -k and -m leave. This runs
        after them, so that no part is empty because of them. What cannot be loaded stays, in each
        part.
        """
        aside = unjudged.set_aside(items)
        yield
        impls = {id(entry.impl) for entry in self.chosen.entries}
        # If nothing could be loaded, pytest makes one test for each law without an implementation,
        # and skips it.
        items[:] = [item for item in items if not judges(item) or id(item.callspec.params["impl"]) in impls]
        if self.options.shard:
            items[:], elsewhere, facts = shard.split(items, self.options.shard, self.options.device)
            self.judging.shard_facts = facts | {name: facts[name] + len(aside) for name in ("tests", "tests_of_all")}
            if elsewhere:
                config.hook.pytest_deselected(items=elsewhere)
        items += aside
        if any(judges(item) for item in items):
            names = [entry.name for entry in self.chosen.entries]
            items[:] = by_implementation(items, names, self.options.workers)

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
        if nodes := self.config.pluginmanager.get_plugin("terminaldistreporter"):
            nodes.ensure_show_status = lambda: None  # it would print "bringing up nodes..." again
        planned = {test: judged for test in tests if (judged := judged_in(test))}
        if not planned or self.report.planned or self.config.getoption("collectonly"):
            return
        try:
            _ = self.chosen.entries  # sets `elsewhere`; with workers nothing else does
            facts = all_plain(self.facts.environment(planned.keys(), self.judging.shard_facts))
            kept = resume.Kept([], [])
            earlier = self._earlier(facts)
            if self.options.given("resume"):
                kept = resume.kept(self.options.earlier, facts, self.facts.reads())
            with self.interrupts.waiting():
                planned_of = by_chapter((impl, chapter) for chapter, _, impl in planned.values())
                self.report.start(facts, len(planned), kept.results, planned_of)
            self.judging.keep(kept.results)
        except (FolderError, ResumeError) as error:
            raise pytest.UsageError(str(error)) from None
        for last in self.report.directory.glob("last-case-*.txt"):
            self.tell(f"an earlier run died in {last_case_in(last)}")
            last.unlink()
        self._forget_explanations()
        for line in kept.again:
            self.tell(plain(line))
        decided = {(result["law"], result["impl"]) for result in kept.results}
        left = [judged[1:] for judged in planned.values() if judged[1:] not in decided]
        self.progress = Progress(left, earlier, self.options.limits)
        before = sum(earlier.get(judged, 0.0) for judged in left)
        has_header = self.config.option.verbose >= 0  # pytest's, with the lines of this plug-in
        for line in [
            *([] if has_header else self._facts()),
            *announcing.announcement(left, len(kept.results), before, self.options, self.chosen),
        ]:
            self.tell(line, yellow=False)
        self._compile_ahead([impl for _, impl in left])

    def _forget_explanations(self) -> None:
        """Remove what workers of this run, or of an earlier one that was killed, have shared."""
        with suppress(OSError):
            (self.report.directory / EXPLANATIONS).unlink()

    def _earlier(self, facts: dict) -> dict[tuple[str, str], float]:
        """Return the seconds of each law in the report that this run replaces, if it judged in the
        same way.
        """
        return seconds_of(self.options.earlier.record, facts) if self.options.earlier else {}

    def _compile_ahead(self, laws_of: list[str]) -> None:
        """Compile kernels for the GPU. laws_of: the implementation of each law to judge."""
        if self.options.device == "cuda" and not self.chosen.untrusted:
            few = self.options.profile.cases <= MOST_CASES
            self._ahead = ahead.start(laws_of, self.options.workers, self.options.seed if few else None)

    def tell(self, text: str, yellow: bool = True) -> None:
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
        if report.outcome != AGAIN:
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
            with self.interrupts.waiting():
                self.report.add(result)
                self._first.setdefault(result["impl"], report.nodeid)
                if group_of(result, asked_for=self.options.asked.named) is Group.UNDECIDED:
                    self.undecided[report.nodeid] = f"unknown: {result['reason']}"
            self._show_first(result)
            if self.progress and (line := self.progress.add(result)):
                self.tell(f"flash-attest: {line}", yellow=False)

    def _show_first(self, result: dict) -> None:
        """Print the whole message of the first failure, long before all failures are known."""
        if self.shown is None and result["verdict"] == FAIL and not result["known"]:
            self.shown = result
            out = self.config.pluginmanager.get_plugin("terminalreporter")
            if out is not None and self.progress is not None:
                self.tell("", yellow=False)
                with conclusion.no_commands(out):
                    conclusion.print_first(result, out)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo) -> None:
        """Leave pytest's lines about a traceback out: the last lines say how far the run came."""
        if isinstance(excinfo.value, KeyboardInterrupt):
            self.interrupted = True
            out = self.config.pluginmanager.get_plugin("terminalreporter")
            if hasattr(out, "_report_keyboardinterrupt") and not self.config.option.fulltrace:
                out._report_keyboardinterrupt = lambda: None

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node) -> None:
        self.aside.add_of_worker(node)

    def pytest_sessionfinish(self, session, exitstatus) -> None:
        self.judging.close()
        self.aside.add_of(self.judging.judge_if_made)
        self.aside.add([], end_those_of_imports())
        for process in self._ahead:
            end(process)
        if self.worker is None and self.report.planned:
            self._forget_explanations()
        if self.worker is not None:
            self.config.workeroutput[ASIDE_KEY] = self.aside.for_controller()
        if self.worker is not None or not self.report.planned:
            return
        ended = INTERRUPTED if exitstatus == pytest.ExitCode.INTERRUPTED else STOPPED
        found, seconds = self._concluded(), round(time.perf_counter() - self.started, 1)
        for impl, why in found["unjudged"].items():
            if impl in self._first:  # an interrupted run may have kept verdicts, and reported none
                self.undecided[self._first[impl]] = f"nothing was judged of {impl}: {why}"
        found |= {"seconds": seconds, "workers": self.options.workers} | self.aside.facts()
        if trouble := self.report.finish(ended, **found):
            found = self._concluded(trouble)
        self.verdict = found["verdict"]
        if exitstatus == pytest.ExitCode.OK and not self.green:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _concluded(self, trouble: str = "") -> dict:
        return concluded(
            self.report.results,
            self.options.asked,
            left=self.report.planned - len(self.report.results),
            planned=self.report.planned,
            device=self.options.device,
            emulated=emulated_on(self.options.device),
            elsewhere=self.chosen.elsewhere,
            trouble=trouble,
        )

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
        for line in report.environment.get("remarks", ()):
            out.write_line(line, yellow=True)
        verbose = self.config.option.verbose > 0
        with conclusion.no_commands(out):
            conclusion.print_failures(report, out, self.shown)
            conclusion.print_verdicts(report, out, asked=self.options.asked, verbose=verbose)
        conclusion.print_annotations(report.results, out, self.options.asked, report.environment["unjudged"])
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
            late = sum(result["why"] == Reason.TIME_LIMIT.value for result in self.report.results)
            return f"{late} not decided within the time limit; --resume goes on from there" if late else ""
        return f"{facts['state']}: {facts['decided']} of {facts['planned']} decided; --resume goes on from there"

    def last_line(self) -> tuple[str, bool]:
        """Return the verdict in a line, and whether it is green; ("", True) if nothing was to be
        judged.
        """
        nothing = self.config.getoption("collectonly") or self.worker is not None
        if self.options.shard and not self.report.planned and not nothing:
            return f"not green: no law is left for shard {self.options.shard}", False
        if self.interrupted and not self.report.planned and not nothing and unjudged.names_laws(self.config.args):
            return "not green: interrupted before anything was judged", False
        return self.verdict, self.green
