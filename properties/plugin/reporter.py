"""The pytest plug-in: collects verdicts from all workers, reports them, and sets the exit status."""

from __future__ import annotations

import secrets
import shlex
import sys
import time
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from rich.console import Console

from impls import registry
from impls.registry import Entry, RegistryError
from properties.cases.case import CaseError, parse_case
from properties.failures import Reason
from properties.judging.plan import CALLED_WITH, Plan
from properties.judging.verdict import FAIL, PASS, UNKNOWN, Result
from properties.plugin import shard, times
from properties.plugin.order import by_implementation, judges
from properties.plugin.process import prepare
from properties.plugin.report import Report, environment, print_table
from properties.plugin.session import Judge, conclude
from properties.profiles import DEFAULT, PROFILES

KEY = "attest"  # under which a result travels from a worker to the controller
SHARD_KEY = "attest_shard"  # and what is known about the part of the run
LETTERS = {"refused": "r", UNKNOWN: "?", "known failure": "x"}


class Reporter:
    """One for each pytest process. On a worker it only judges; on the controller it also writes."""

    def __init__(self, config: pytest.Config):
        self.config = config
        self.worker = getattr(config, "workerinput", None)
        self.report = Report(Path(config.getoption("--report")))
        self.seed = self.worker["attest_seed"] if self.worker else _seed(config)
        self.profile_name = config.getoption("hypothesis_profile") or DEFAULT
        self.profile = PROFILES[self.profile_name]
        self.shard = shard_option(config)
        self.shard_facts: dict = self.shard._asdict() if self.shard else {}
        self.died: list[str] = []
        self.started = time.perf_counter()
        self._entries: list[Entry] | None = None
        self._judge: Judge | None = None

    @property
    def entries(self) -> list[Entry]:
        """The selected implementations, by name; a selection that makes no sense ends the run with a usage error."""
        if self._entries is None:
            files = self.config.getoption("--impl-from")
            names = self.config.getoption("--impl")
            try:
                found = [entry for argument in files for entry in registry.from_file(argument)]
                found += registry.from_hook(self.config.hook.pytest_attention_impls(config=self.config))
                if not files or names is not None:
                    found += registry.ours()
                self._entries = registry.select(found, names)
            except RegistryError as error:
                raise pytest.UsageError(str(error)) from None
        return self._entries

    @property
    def judge(self) -> Judge:
        """Made on first use, as it needs torch."""
        if self._judge is None:
            option = self.config.getoption
            try:
                case = parse_case(option("--case")) if option("--case") else None
            except CaseError as error:
                raise pytest.UsageError(str(error)) from None
            plan = Plan(
                device=self.device(),
                examples=settings.default.max_examples,
                seed=self.seed,
                repeats=self.repeats,
                case=case,
                small=self.profile.small,
            )
            name = self.worker["workerid"] if self.worker else "main"
            self._judge = Judge(plan, self.entries, self.report.directory, name)
            prepare(plan.device, is_worker=self.worker is not None)
        return self._judge

    @property
    def repeats(self) -> int:
        """As --repeats says, else as the profile says."""
        return self.config.getoption("--repeats") or self.profile.repeats_on(self.device())

    def device(self) -> str:
        """As --device says: "cuda" or "cpu"."""
        wanted, there = self.config.getoption("--device"), torch.cuda.is_available()
        if wanted == "cuda" and not there:
            raise pytest.UsageError(
                "--device cuda: torch.cuda.is_available() is False here; --device cpu judges on the CPU"
            )
        return "cuda" if there and wanted != "cpu" else "cpu"

    def judge_for(self, item: pytest.Item):
        """What the `judge` fixture gives to one test."""

        def judged(result: Result, impl) -> None:
            try:
                conclude(result, impl)
            finally:
                item.user_properties.append((KEY, result.as_dict()))
                if self.shard:
                    item.user_properties.append((SHARD_KEY, self.shard_facts))

        def judge(law, impl) -> None:
            judged(self.judge.law(law, impl), impl)

        judge.contract = lambda impl: judged(self.judge.contract(impl), impl)
        return judge

    # --- hooks ----------------------------------------------------------------------------------------------------------

    def pytest_sessionstart(self) -> None:
        """Refuses invalid options before anything runs."""
        option = self.config.getoption
        if option("--device") == "cuda":
            self.device()
        if option("--impl") or option("--impl-from"):
            _ = self.entries
        if option("--case"):
            _ = self.judge
        if self.worker is None:
            for last in self.report.directory.glob("last-case-*.txt"):
                self.died.append(f"an earlier run died in {last.read_text().strip()}")
                last.unlink()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Last, so that what -k and -m leave is split, and no part of it is empty by their choice."""
        if self.shard:
            items[:], elsewhere, self.shard_facts = shard.split(items, self.shard, self.device())
            if elsewhere:
                config.hook.pytest_deselected(items=elsewhere)
        if any(judges(item) for item in items):
            items[:] = by_implementation(items, [entry.name for entry in self.entries])

    def pytest_report_header(self) -> list[str]:
        if self.worker is not None or self.config.getoption("collectonly"):
            return []
        part = f" shard {self.shard} of the laws" if self.shard else ""
        return [
            *self.died,
            f"flash-attest: judges{part} on {self.device()}, profile {self.profile_name} "
            f"({settings.default.max_examples} cases a law), seed {self.seed}, report in {self.report.directory}/",
        ]

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report):
        result = _result_of(report)
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
        result = _result_of(report) if report.when == "call" else None
        if hasattr(report, "attest_worker"):
            result = self._crashed(report)
        if result is not None:
            if not self.report.environment:
                self.report.environment = environment(
                    self.device(),
                    seed=self.seed,
                    profile=self.profile_name,
                    cases_per_law=settings.default.max_examples,
                    repeats=self.repeats,
                    command=shlex.join(["pytest", *map(str, self.config.invocation_params.args)]),
                    **({"shard": self.shard_facts} if self.shard else {}),
                )
            if facts := _result_of(report, SHARD_KEY):
                self.report.environment["shard"] = self.shard_facts = facts
            self.report.add(result)

    def _crashed(self, report) -> dict | None:
        """The worker died in a law: the case that it wrote down last is the one to look at."""
        path, _, test = report.nodeid.partition("::")
        law, _, impl = test.rstrip("]").partition("[")
        if not impl or not path.startswith("properties/"):
            return None
        last = self.report.directory / f"last-case-{report.attest_worker}.txt"
        case = last.read_text().strip() if last.exists() else ""
        known = f"the last case launched was {case}" if case else "it had launched no case"
        reason = f"worker {report.attest_worker} died; {known}"
        options = [entry.option for entry in self.entries if entry.name == impl and entry.option]
        replayed = [f"--case '{case.partition(' ')[2].partition(CALLED_WITH)[0]}'"] if case else []
        replay = " ".join([f"pytest '{report.nodeid}'", *options, *replayed])
        report.longrepr = f"{law}[{impl}]: {reason}\n\nReplay\n  {replay}\n"
        result = Result(impl, Path(path).stem, law, UNKNOWN, reason, Reason.WORKER_DIED, message=reason, replay=replay)
        return result.as_dict()

    def pytest_sessionfinish(self, session, exitstatus) -> None:
        if self._judge is not None:
            self._judge.close()
        if self.worker is not None or not self.report.results:
            return
        self.report.finish(seconds=round(time.perf_counter() - self.started, 1), workers=self._workers())
        if exitstatus == pytest.ExitCode.OK and self._not_green():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter, exitstatus) -> None:
        if self.worker is not None:
            return
        out = terminalreporter
        if not self.report.results:
            if self.shard and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
                out.write_line(f"not green: no law is left for shard {self.shard}", yellow=True)
            return
        out.section("verdicts")
        console = Console(
            file=sys.stdout, width=max(130, out._tw.fullwidth), force_terminal=out._tw.hasmarkup, soft_wrap=True
        )
        print_table(self.report, console)
        out.write_line(times.sentence(self.report.results, self.report.environment))
        out.write_line(f"report: {self.report.directory}/index.html and results.json")
        if self.shard:
            of_all = f"{len(self.report.results)} of {self.shard_facts.get('tests_of_all', 'all')} verdicts"
            out.write_line(f"shard {self.shard}: {of_all}; python -m properties.plugin.merge joins the reports")
        if reason := self._not_green():
            out.write_line(f"not green: {reason}", yellow=True)

    def _workers(self) -> int:
        """How many processes judged."""
        return len(self.config.getoption("tx", None) or [None])

    def _not_green(self) -> str:
        option = self.config.getoption
        asked_for = bool(option("--impl") or option("--impl-from"))
        return not_green(self.report.results, asked_for=asked_for, replayed=bool(option("--case")))


def not_green(results: list[dict], *, asked_for: bool, replayed: bool) -> str:
    """Why a run without failures is not green; "" if it is.

    Laws that do not apply on this device or machine do not count, nor do implementations of another device unless they were
    asked for by name. A replay is green only if a law took its case.
    """
    excused = {Reason.LAW_OF_OTHER_DEVICE.value, Reason.NO_SPARSE_MEMORY.value}
    if not asked_for:
        excused.add(Reason.OTHER_DEVICE.value)
    if undecided := sum(r["verdict"] == UNKNOWN and r["why"] not in excused for r in results):
        return f"{undecided} could not be decided"
    laws = [result for result in results if result["chapter"] != "test_contract"]
    if replayed and laws and not {PASS, FAIL} & {result["verdict"] for result in laws}:
        return f"no law took the case: {laws[0]['reason']}"
    return ""


def _result_of(report, key: str = KEY) -> dict | None:
    return next((value for name, value in getattr(report, "user_properties", ()) if name == key), None)


def shard_option(config: pytest.Config) -> shard.Shard | None:
    """The part that --shard names; None without it."""
    text = config.getoption("--shard")
    try:
        return None if text is None else shard.parse(text)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


def _seed(config: pytest.Config) -> int:
    text = config.getoption("hypothesis_seed", None)
    if text in (None, ""):
        return 0
    if text == "random":
        return secrets.randbelow(2**32)
    if not text.isdecimal():
        raise pytest.UsageError(f"--hypothesis-seed {text}: should be a whole number, or random")
    return int(text)
