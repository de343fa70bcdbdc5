"""A run of pytest in another repository: judges the tests under @attention_laws, and sums up their
verdicts at the end.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from flash_attest.impls.contract.entry import Entry
from flash_attest.impls.contract.loading import file_of_function
from flash_attest.impls.contract.location import declared_at
from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.judging.origin import DecoratedTest
from flash_attest.properties.judging.plain_text import all_plain
from flash_attest.properties.judging.verdict import FAIL, Result, law_name
from flash_attest.properties.law import laws
from flash_attest.properties.machine.gpus import emulate_if_no_gpu, emulated_on
from flash_attest.runner.bound import BoundLaw, laws_of
from flash_attest.runner.causes import causes_of
from flash_attest.runner.green import CONTRACT, EXPECTED, Asked, Group, concluded, counted, group_of, is_green
from flash_attest.runner.isolation.host import Host
from flash_attest.runner.isolation.isolated import Isolated
from flash_attest.runner.isolation.parent import forks_can_use_cuda
from flash_attest.runner.judge import Judge, compare_with_known
from flash_attest.runner.plugin import conclusion, terminal
from flash_attest.runner.plugin.aside import KEY as ASIDE_KEY
from flash_attest.runner.plugin.aside import Aside
from flash_attest.runner.plugin.conclude import conclude, shows_message
from flash_attest.runner.plugin.environment import environment
from flash_attest.runner.plugin.folder import FolderError
from flash_attest.runner.plugin.options import OwnOptions
from flash_attest.runner.plugin.outcomes import GPU_KEY, KEY, LACKS_KEY, PLANNED_KEY, TESTS_KEY, by_chapter, result_of
from flash_attest.runner.plugin.report import INTERRUPTED, STOPPED, Report
from flash_attest.runner.start import judge_of

IN_PROCESS = (
    "flash-attest: laws were judged in the pytest process, which a crash ends: CUDA was in use before they began. Where only "
    "torch.cuda.is_available() was asked, PYTORCH_NVML_BASED_CUDA_CHECK=1 in the environment lets processes be forked"
)


class Own:
    """The plug-in object, one for each pytest process.

    A process that runs tests judges; the controller of pytest-xdist reports.
    """

    def __init__(self, config: pytest.Config, items: Sequence[pytest.Item]):
        self.config = config
        self.options = OwnOptions(config)
        self.options.check()
        self.worker = self.options.worker
        self.bound = {item: law for item in items if (law := bound_law_of(item)) is not None}
        self.item: pytest.Item | None = None  # the test that runs now
        self.clash = ""  # two implementations with one name; a worker's tests report it
        self.concluded: dict[tuple[pytest.Item, BoundLaw], Result] = {}
        self._judge: Judge | Isolated | Host | None = None
        self._folder: Path | None = None  # where the judge writes down the case in progress
        self.aside = Aside()
        self.results: list[dict] = []
        self.undecided: dict[str, str] = {}  # test id of a law without a verdict that counts: why
        self._first: dict[str, str] = {}  # an implementation -> the id of its first test
        self.trouble = ""  # why the report is not on disk
        self.found: dict = {}  # what `concluded` returns at the end of the run
        self.started = time.perf_counter()
        self.report: Report | None = None
        self.in_process = False  # because a test module used CUDA during its import
        self.device_name = ""
        for law in self.bound.values():
            law.judged, law.impl = self._judged, law.impl.on(self.options.device)
        self.entries = self._entries()
        judged = {
            (law.impl.name, law.law.chapter if law.law else CONTRACT, law.test_name) for law in self.bound.values()
        }
        self.planned = by_chapter((impl, chapter) for impl, chapter, _ in judged)
        self.tests = len(self.bound)
        self.lacks_laws = self._lacks_laws()  # whether other tests of these implementations were deselected
        self.judged: set[str] = set()  # the ids of tests with a verdict
        self.skipped: set[str] = set()  # the ids of tests that were skipped instead

    # --- where tests run -------------------------------------------------------------------------

    def _entries(self) -> list[Entry]:
        """Return the implementations of all tests. Two with the same name are an error."""
        by_name: dict[str, tuple[Implementation, str]] = {}
        for item, law in self.bound.items():
            where = item.nodeid.partition("[")[0]
            impl, first = by_name.setdefault(law.impl.name, (law.impl, where))
            if impl is not law.impl:
                words = f"of {first} and of {where}; give one of them name=..."
                self.clash = f"two implementations are named {impl.name!r}: {words}"
                if self.worker is None:
                    raise pytest.UsageError(self.clash)
        return [Entry(impl, file_of_function(impl.forward)) for impl, _ in by_name.values()]

    def _lacks_laws(self) -> bool:
        tests = {(law.impl.name, law.test_name) for law in self.bound.values()}
        here = Counter(impl for impl, _ in tests)
        return any(here[entry.name] < len(laws_of(entry.impl)) for entry in self.entries)

    def begin(self) -> None:
        """Fork the process that judges, before any test uses CUDA."""
        if self.bound and not self.config.getoption("collectonly"):
            _ = self.judge

    @property
    def judge(self) -> Judge | Isolated | Host:
        """The judge, made on first use."""
        if self._judge is None:
            options, isolated = self.options, self.options.isolated
            if isolated and options.device == "cuda" and not forks_can_use_cuda():
                isolated, self.in_process = False, True
            if not isolated:  # a separate process would do so itself
                emulate_if_no_gpu(options.given("device"), options.given("emulated"))
            self._folder = Path(tempfile.mkdtemp(prefix="attest-"))
            judge = judge_of(
                options.plan(),
                self.entries,
                self._folder,
                isolated=isolated,
                limit=options.case_timeout,
                limits=options.limits,
                name=options.worker_name,
                is_worker=self.worker is not None,
                keeps_streams=options.keeps_streams,
                origin_of=self._origin_of,
            )
            if isinstance(judge, Isolated):
                judge = Host(judge, [entry.impl for entry in self.entries], laws())
                judge.begin()
            self._judge = judge
        return self._judge

    def _origin_of(self, entry: Entry) -> DecoratedTest:
        """Return how a command here names an implementation's tests, and how to collect them."""
        config, tests = self.config, {}
        for item, law in self.bound.items():
            if law.impl is entry.impl:
                path = os.path.relpath(item.path, config.invocation_params.dir)
                tests.setdefault(law.test_name, f"{path}::{item.nodeid.partition('::')[2]}")
        settings = ("-c", str(config.inipath)) if config.inipath else ()
        files = dict.fromkeys(str(item.path) for item, law in self.bound.items() if law.impl is entry.impl)
        return DecoratedTest(tests, (*files, f"--rootdir={config.rootpath}", *settings))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.item = item
        if item in self.bound:
            item.user_properties += [(TESTS_KEY, self.tests), (LACKS_KEY, self.lacks_laws)]

    def _judged(self, bound: BoundLaw) -> None:
        """Judge a law for the test that runs."""
        if self.clash:
            pytest.fail(self.clash, pytrace=False)
        law, impl, place = bound.law, bound.impl, (self.item, bound)
        if place not in self.concluded:  # a test may call law() again
            result = self.judge.contract(impl) if law is None else self.judge.law(law, impl)
            compare_with_known(result, impl, self.options.device)
            result.declared_at = declared_at(Entry(impl, file_of_function(impl.forward)))
            result.made_plain()
            self.item.user_properties += [
                (KEY, all_plain(result.as_dict())), (GPU_KEY, self.judge.device_name), (PLANNED_KEY, self.planned)
            ]  # fmt: skip
            self.concluded[place] = result
        conclude(self.concluded[place])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo):
        report = yield
        return shows_message(report, call)

    # --- where results arrive --------------------------------------------------------------------

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the result. This happens on the controller, or in the only process."""
        result = result_of(report) if self.worker is None and report.when == "call" else None
        if self.worker is None and (tests := result_of(report, TESTS_KEY)) is not None:
            self.tests, self.lacks_laws = tests, bool(result_of(report, LACKS_KEY))
            if report.skipped and result is None:
                self.skipped.add(report.nodeid)
        if result is None:
            return
        if report.passed and result["verdict"] == FAIL:  # for example under pytest.raises
            result["known"] = EXPECTED
        self.device_name = result_of(report, GPU_KEY) or self.device_name
        self.judged.add(report.nodeid)
        self.results.append(result)
        self._first.setdefault(result["impl"], report.nodeid)
        if group_of(result, asked_for=False) is Group.UNDECIDED:
            self.undecided[report.nodeid] = f"unknown: {result['reason']}"
        if self.options.given("report"):
            self._write(result, planned=result_of(report, PLANNED_KEY))

    def _write(self, result: dict, planned: dict[str, dict[str, int]]) -> None:
        """Add a result to the report, which the first result creates."""
        if self.report is None:
            here = self.config.invocation_params.dir  # a test module may have changed the working directory
            self.report = Report(here / self.options.given("report"))
            options = self.options
            facts = environment(
                options.device, seed=options.seed, profile=options.profile_name, cases_per_law=options.profile.cases,
                repeats=options.repeats, command=shlex.join(["pytest", *map(str, self.config.invocation_params.args)]),
            )  # fmt: skip
            try:
                self.report.start(
                    all_plain(facts), sum(sum(of.values()) for of in planned.values()), planned_of=planned
                )
            except FolderError as error:
                raise pytest.UsageError(str(error).replace("--report", "--attest-report")) from None
        if self.device_name:
            self.report.environment["device_name"] = self.device_name
        self.report.add(result)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node) -> None:
        self.aside.add_of_worker(node)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        try:
            if self._judge is not None:
                self._judge.close()
                self.aside.add_of(self._judge)
            if self.worker is not None:
                self.config.workeroutput[ASIDE_KEY] = self.aside.for_controller()
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
            if self.report is not None:
                ended = INTERRUPTED if exitstatus == pytest.ExitCode.INTERRUPTED else STOPPED
                seconds = round(time.perf_counter() - self.started, 1)
                facts = self._concluded() | {"asked": self.asked.as_dict(), "seconds": seconds} | self.aside.facts()
                self.trouble = self.report.finish(ended, **facts, workers=self.options.workers)
        if self.worker is not None or not self.results:
            return
        self.found = self._concluded()
        for impl, why in self.found["unjudged"].items():
            self.undecided[self._first[impl]] = f"nothing was judged of {impl}: {why}"
        if exitstatus == pytest.ExitCode.OK and not self.green:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @property
    def asked(self) -> Asked:
        """The scope of the run.

        Some laws are missing without -k or the like where another plug-in splits the tests over
        machines, or takes those that failed. The others are judged in another run.
        """
        return replace(self.options.asked, part=self.lacks_laws and not self.options.narrowed)

    def _concluded(self) -> dict:
        return concluded(
            self.results,
            self.asked,
            left=self.tests - len(self.judged | self.skipped),
            planned=self.tests,
            device=self.options.device,
            emulated=emulated_on(self.options.device),
            trouble=self.trouble,
        )

    @property
    def verdict(self) -> str:
        """The last line of the run, once it has ended."""
        return self.found["verdict"]

    @property
    def green(self) -> bool:
        """Whether every law that applies here holds."""
        return is_green(self.verdict)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter):
        """Print the whole message of each cause, and one line for each other law with this
        cause.
        """
        causes = causes_of(self.results)
        beside = {id(other): cause for cause in causes for other in cause.others}
        for report in terminalreporter.stats.get("failed", []):
            result = result_of(report)
            if (cause := beside.get(id(result))) is not None:
                as_well = f"for the same cause as {law_name(cause.first['law'])}"
                report.longrepr = f"{result['reason']}\n  ({as_well})\n  {result['replay']}"
        yield
        if self.worker is None and self.results:
            self._print_end(terminalreporter)

    def _print_end(self, out: pytest.TerminalReporter) -> None:
        names = sorted({result["impl"] for result in self.results})
        for name in names if len(names) > 1 else ():
            laws = [result for result in self.results if result["impl"] == name]
            out.write_line(f"flash-attest: {name}: {counted(laws, asked_for=False, device=self.options.device)}")
        console = conclusion.console_of(out)
        with conclusion.no_commands(out):
            terminal.print_unjudged(self.results, console, self.found["unjudged"])
            terminal.print_undecided(self.results, console, asked_for=False)
            terminal.print_causes(causes_of(self.results), console)
        for line in all_plain(self.aside.lines):
            out.write_line(f"flash-attest: {line}", yellow=True)
        if self.in_process:
            out.write_line(IN_PROCESS, yellow=True)
        conclusion.print_annotations(self.results, out, self.asked, self.found["unjudged"])
        if self.report is not None:
            out.write_line(f"flash-attest: report: {self.options.given('report')}/index.html (report.md, results.json)")

    def last_line(self) -> tuple[str, bool]:
        """Return the verdict in a line, and whether it is green; ("", True) without laws."""
        if self.worker is not None or not self.results:
            return "", True
        return f"flash-attest: {self.verdict}", self.green


def bound_law_of(item: pytest.Item) -> BoundLaw | None:
    """Return the law that a test under @attention_laws receives, or None for any other test."""
    callspec = getattr(item, "callspec", None)
    given = callspec.params.values() if callspec else ()
    return next((value for value in given if isinstance(value, BoundLaw)), None)
