"""Reads and checks the options of a run.

A value that makes no sense ends the run with a usage error that names it.
"""

from __future__ import annotations

import functools
import os
import secrets
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from flash_attest.arguments import no_text
from flash_attest.properties.cases.case import Case, CaseError, parse_case
from flash_attest.properties.judging.plan import Plan
from flash_attest.races.perturb import chosen
from flash_attest.runner import parts
from flash_attest.runner.green import Asked
from flash_attest.runner.isolation.parent import possible
from flash_attest.runner.limits import TimeLimits
from flash_attest.runner.plugin import resume, table
from flash_attest.runner.profiles import DEFAULT, PROFILES, Profile


class Options:
    """The options of the suite's own run. Hypothesis' options give the profile and the seed."""

    prefix = ""

    def __init__(self, config: pytest.Config):
        self.config = config
        self.args = [*getattr(config, "args", ())]  # files and ids of tests, before others are added
        self.worker: dict | None = getattr(config, "workerinput", None)
        # By time.monotonic, which all processes of a machine share.
        self.began: float = (self.worker or {}).get("attest_began", time.monotonic())

    def given(self, name: str) -> Any:
        """Return the value of an option, by its name in the table."""
        return self.config.getoption(f"--{self.prefix}{name}")

    def wrong(self, name: str, text: str) -> pytest.UsageError:
        """Return a usage error about an option."""
        return pytest.UsageError(f"--{self.prefix}{name} {text}")

    def check(self) -> None:
        """Raise a usage error for a value that makes no sense, before anything runs."""
        paths = [] if self.prefix else self.given("impl-from")
        for text in (*paths, self.given("report") or "", str(self.config.invocation_params.dir)):
            if problem := no_text(text):
                raise pytest.UsageError(problem)
        if os.path.isfile(self.given("report") or ""):
            raise self.wrong("report", f"{self.given('report')}: is a file, should be a folder")
        if self.given("repeats") is not None and self.given("repeats") < 1:
            raise self.wrong("repeats", f"{self.given('repeats')}: should be at least 1")
        limits = {
            "case-timeout": self.case_timeout,
            "law-time-limit": self.law_time_limit,
            "time-limit": self.time_limit,
        }
        for name, seconds in limits.items():
            if not 0 <= seconds < float("inf"):
                raise self.wrong(name, f"{seconds:g}: should be a number of seconds, or 0 for no limit")
        if (target := self.given("emulated")) and self.device == "cuda":
            raise self.wrong(
                "emulated", f"{target}: a GPU runs the kernels here: hide it with --{self.prefix}device cpu"
            )
        _ = self.seed, self.perturbations

    @property
    def profile_name(self) -> str:
        """Return the profile's name, from --hypothesis-profile."""
        return self.config.getoption("hypothesis_profile") or DEFAULT

    @property
    def profile(self) -> Profile:
        """Return the profile, which sets how much is judged."""
        return PROFILES[self.profile_name]

    @functools.cached_property
    def seed(self) -> int:
        """Return the seed from --hypothesis-seed.

        A random one is drawn once for a run and its --resume.
        """
        if self.worker:
            return self.worker["attest_seed"]
        text = self.config.getoption("hypothesis_seed", None)
        if text in (None, ""):
            return 0
        if text == "random":
            if self.given("resume") and self.earlier is not None:
                return self.earlier.record["environment"].get("seed")
            return secrets.randbelow(2**32)
        if not text.isdecimal():
            raise pytest.UsageError(f"--hypothesis-seed {text}: should be a whole number, or random")
        return int(text)

    @functools.cached_property
    def earlier(self) -> resume.Earlier | None:
        """The report that is in the folder now, read once; None if there is none."""
        try:
            return resume.earlier(Path(self.given("report")))
        except resume.ResumeError:
            return None

    @functools.cached_property
    def shard(self) -> parts.Shard | None:
        """Return the part that --shard names, or None without it."""
        text = self.given("shard")
        try:
            return None if text is None else parts.parse(text)
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None

    @functools.cached_property
    def perturbations(self) -> str:
        """Return the perturbations that --perturb names, or "" without it."""
        text = self.given("perturb")
        if text is None:
            return ""
        if not text.strip(", "):
            raise self.wrong("perturb", f"{text!r}: names no perturbation; write none for no perturbation")
        try:
            chosen(text, self.device)
        except ValueError as error:
            raise self.wrong("perturb", str(error)) from None
        return text

    @property
    def case(self) -> Case | None:
        """Return the case from --case, or None without it."""
        try:
            return parse_case(self.given("case")) if self.given("case") else None
        except CaseError as error:
            raise pytest.UsageError(str(error).replace("--case", f"--{self.prefix}case", 1)) from None

    @property
    def device(self) -> str:
        """Return "cuda" or "cpu", as --device says."""
        device, available = self.given("device"), torch.cuda.is_available()
        if device == "cuda" and not available:
            raise self.wrong(
                "device", f"cuda: torch.cuda.is_available() is False here; --{self.prefix}device cpu judges on the CPU"
            )
        return "cuda" if available and device != "cpu" else "cpu"

    @property
    def repeats(self) -> int:
        """Return the number of repeats from --repeats or the profile."""
        return self.given("repeats") or self.profile.repeats_on(self.device)

    @property
    def case_timeout(self) -> float:
        """Return the seconds that a call may take, from --case-timeout; 0 for no limit."""
        return self.given("case-timeout")

    @property
    def law_time_limit(self) -> float:
        """Return the seconds that a law may take, from --law-time-limit; 0 for no limit."""
        return self.given("law-time-limit") or 0.0

    @property
    def time_limit(self) -> float:
        """Return the seconds that the run may take, from --time-limit; 0 for no limit."""
        return self.given("time-limit") or 0.0

    @property
    def limits(self) -> TimeLimits:
        """Return both time limits."""
        return TimeLimits(self.law_time_limit, self.time_limit, self.began)

    @property
    def may_isolate(self) -> bool:
        """Return whether implementations should be called in separate processes where possible."""
        return possible() and not self.given("no-isolation")

    @property
    def isolated(self) -> bool:
        """Return whether this process can call implementations in separate processes.

        A process forked from one that has used CUDA could not use CUDA.
        """
        if self.device == "cuda" and torch.cuda.is_initialized():
            return False
        return self.may_isolate

    @property
    def asked(self) -> Asked:
        """The scope of the run."""
        named = bool(self.given("impl") or self.given("impl-from"))
        return Asked(
            named=named,
            each=named or not self.narrowed,
            replayed=bool(self.given("case")),
            contract=self._names_the_contract,
            part=bool(self.shard),
        )

    @property
    def narrowed(self) -> bool:
        """Whether the command selects some of the laws: by -k, -m, a file or the id of a test."""
        args = [arg.rpartition("/")[2] for arg in self.args]
        return self._selects or any(arg.startswith("test_") or "::" in arg for arg in args)

    @property
    def _selects(self) -> bool:
        return any(self.config.getoption(name, None) for name in ("keyword", "markexpr", "deselect"))

    @property
    def _names_the_contract(self) -> bool:
        typed = [self.config.getoption("keyword", ""), *(arg.rpartition("/")[2] for arg in self.args)]
        return any("contract" in text for text in typed)

    @property
    def keeps_streams(self) -> bool:
        """Return whether kernels print where pytest prints."""
        return self.config.getoption("capture") == "no"

    @property
    def worker_name(self) -> str:
        """Return the name of this process."""
        return self.worker["workerid"] if self.worker else "main"

    @property
    def workers(self) -> int:
        """Return how many processes judge."""
        if self.worker is not None:
            return int(self.worker["workercount"])
        return len(self.config.getoption("tx", None) or [None])

    def plan(self) -> Plan:
        """Return the plan of the run: how it judges."""
        return Plan(
            device=self.device,
            examples=self.profile.cases,
            seed=self.seed,
            repeats=self.repeats,
            perturbations=self.perturbations,
            case=self.case,
            only_case=self.case is not None,
            case_timeout=self.case_timeout,
            small=self.profile.small,
        )


class OwnOptions(Options):
    """The options of a run in another repository. Their names have a prefix, and some can also be
    settings.
    """

    prefix = table.OWN_PREFIX

    def given(self, name: str) -> Any:
        """Return the value from the command line, else from the settings, else the default."""
        value, option = super().given(name), next(option for option in table.OWN if option.name == name)
        setting = f"attest_{name.replace('-', '_')}"
        # A value that differs from the default was given on the command line.
        if not option.ini or value != option.default or not (text := self.config.getini(setting)):
            return value
        if option.choices and text not in option.choices:
            raise pytest.UsageError(f"{setting}={text}: should be one of {', '.join(option.choices)}")
        try:
            return option.type(text) if option.type else text
        except ValueError:
            raise pytest.UsageError(f"{setting}={text}: should be a number") from None

    def check(self) -> None:
        """Check the options, and raise an error for a report folder that has kept pytest from
        reading its settings.
        """
        super().check()
        report, name = self.given("report"), f"--{self.prefix}report"
        if not report or name not in self.config.invocation_params.args:
            return
        outside = not Path(report).resolve().is_relative_to(self.config.invocation_params.dir)
        # Pytest takes such a folder for a test path, and looks for its settings there.
        if outside and Path(report).is_dir():
            raise self.wrong("report", f"{report}: write {name}={report} for a folder that exists outside of this one")

    @property
    def asked(self) -> Asked:
        """The scope of the run. The command line of another repository names no implementations."""
        return Asked(each=not self.narrowed, replayed=bool(self.given("case")), contract=self._names_the_contract)

    @property
    def narrowed(self) -> bool:
        """Whether the command selects some of the tests: by -k, -m or the id of a test."""
        return self._selects or any("::" in arg for arg in self.args)

    @property
    def profile_name(self) -> str:
        """Return the profile's name, from --attest-profile."""
        return self.given("profile") or DEFAULT

    @property
    def case_timeout(self) -> float:
        """Return the seconds that a call may take, from --attest-case-timeout."""
        seconds = self.given("case-timeout")
        return table.CASE_TIMEOUT.default if seconds is None else seconds

    @functools.cached_property
    def seed(self) -> int:
        """Return the seed from --attest-seed."""
        return self.given("seed") or 0
