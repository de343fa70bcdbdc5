"""Reads and checks the options of a run. A value that makes no sense ends the run with a usage error that names it."""

from __future__ import annotations

import contextlib
import functools
import secrets
from pathlib import Path
from typing import Any

import pytest
import torch

from flash_attest.properties.cases.case import Case, CaseError, parse_case
from flash_attest.properties.judging.plan import Plan
from flash_attest.races.perturb import chosen
from flash_attest.runner import parts
from flash_attest.runner.isolation.parent import possible
from flash_attest.runner.plugin import saved, table
from flash_attest.runner.profiles import DEFAULT, PROFILES, Profile


class Options:
    """Options of the suite's own run: as they are named, and Hypothesis' for the profile and the seed."""

    prefix = ""

    def __init__(self, config: pytest.Config):
        self.config = config
        self.worker: dict | None = getattr(config, "workerinput", None)

    def given(self, name: str) -> Any:
        """The value of an option, by its name in the table."""
        return self.config.getoption(f"--{self.prefix}{name}")

    def wrong(self, name: str, text: str) -> pytest.UsageError:
        """The error of an option."""
        return pytest.UsageError(f"--{self.prefix}{name} {text}")

    def check(self) -> None:
        """Raise for a value that makes no sense, before anything runs."""
        if self.given("repeats") is not None and self.given("repeats") < 1:
            raise self.wrong("repeats", f"{self.given('repeats')}: should be at least 1")
        if not 0 <= self.case_timeout < float("inf"):
            raise self.wrong("case-timeout", f"{self.case_timeout:g}: should be a number of seconds, or 0 for no limit")
        _ = self.seed, self.perturbations

    @property
    def profile_name(self) -> str:
        """As --hypothesis-profile says."""
        return self.config.getoption("hypothesis_profile") or DEFAULT

    @property
    def profile(self) -> Profile:
        """How much is judged."""
        return PROFILES[self.profile_name]

    @functools.cached_property
    def seed(self) -> int:
        """As --hypothesis-seed says; a random one is drawn once for a run and those that --resume it."""
        if self.worker:
            return self.worker["attest_seed"]
        text = self.config.getoption("hypothesis_seed", None)
        if text in (None, ""):
            return 0
        if text == "random":
            if self.given("resume"):
                with contextlib.suppress(saved.NoReport):
                    return saved.read(self.given("report"))["environment"]["seed"]
            return secrets.randbelow(2**32)
        if not text.isdecimal():
            raise pytest.UsageError(f"--hypothesis-seed {text}: should be a whole number, or random")
        return int(text)

    @functools.cached_property
    def shard(self) -> parts.Shard | None:
        """The part that --shard names; None without it."""
        text = self.given("shard")
        try:
            return None if text is None else parts.parse(text)
        except ValueError as error:
            raise pytest.UsageError(str(error)) from None

    @functools.cached_property
    def perturbations(self) -> str:
        """The perturbations that --perturb names; "" without it."""
        text = self.given("perturb")
        if text is None:
            return ""
        if not text.strip(", "):
            raise self.wrong("perturb", f"{text!r}: names nothing; none is called none")
        try:
            chosen(text, self.device)
        except ValueError as error:
            raise self.wrong("perturb", str(error)) from None
        return text

    @property
    def case(self) -> Case | None:
        """The case that --case gives."""
        try:
            return parse_case(self.given("case")) if self.given("case") else None
        except CaseError as error:
            raise pytest.UsageError(str(error).replace("--case", f"--{self.prefix}case", 1)) from None

    @property
    def device(self) -> str:
        """As --device says: "cuda" or "cpu"."""
        wanted, there = self.given("device"), torch.cuda.is_available()
        if wanted == "cuda" and not there:
            raise self.wrong(
                "device", f"cuda: torch.cuda.is_available() is False here; --{self.prefix}device cpu judges on the CPU"
            )
        return "cuda" if there and wanted != "cpu" else "cpu"

    @property
    def repeats(self) -> int:
        """As --repeats says, else as the profile says."""
        return self.given("repeats") or self.profile.repeats_on(self.device)

    @property
    def case_timeout(self) -> float:
        """As --case-timeout says: seconds for a call; 0 for no limit."""
        return self.given("case-timeout")

    @property
    def may_isolate(self) -> bool:
        """Whether implementations are called in processes of their own where that can be done."""
        return possible() and not self.given("no-isolation")

    @property
    def isolated(self) -> bool:
        """Whether they are in this process: a fork of one that has used CUDA could not use it."""
        if self.device == "cuda" and torch.cuda.is_initialized():
            return False
        return self.may_isolate

    @property
    def asked_for(self) -> bool:
        """Whether the implementations were asked for by name, so that none of them is excused."""
        return bool(self.given("impl") or self.given("impl-from"))

    @property
    def keeps_streams(self) -> bool:
        """Whether what kernels print goes where pytest prints."""
        return self.config.getoption("capture") == "no"

    @property
    def worker_name(self) -> str:
        """The name of this process."""
        return self.worker["workerid"] if self.worker else "main"

    @property
    def workers(self) -> int:
        """How many processes judge."""
        return len(self.config.getoption("tx", None) or [None])

    def plan(self) -> Plan:
        """How the run judges."""
        return Plan(
            device=self.device,
            examples=self.profile.cases,
            seed=self.seed,
            repeats=self.repeats,
            perturbations=self.perturbations,
            case=self.case,
            small=self.profile.small,
        )


class OwnOptions(Options):
    """Options of a run in somebody's repository: with a prefix, some of them also in pytest's settings."""

    prefix = table.OWN_PREFIX

    def given(self, name: str) -> Any:
        """As the command line has it, else as the settings have it, else the default."""
        value, option = super().given(name), next(option for option in table.OWN if option.name == name)
        setting = f"attest_{name.replace('-', '_')}"
        if not option.ini or value != option.default or not (text := self.config.getini(setting)):
            return value
        if option.choices and text not in option.choices:
            raise pytest.UsageError(f"{setting}={text}: should be one of {', '.join(option.choices)}")
        try:
            return option.type(text) if option.type else text
        except ValueError:
            raise pytest.UsageError(f"{setting}={text}: should be a number") from None

    def check(self) -> None:
        """Raise for a value that makes no sense, and for a report whose folder has kept pytest from reading its settings."""
        super().check()
        report, name = self.given("report"), f"--{self.prefix}report"
        if not report or name not in self.config.invocation_params.args:
            return
        outside = not Path(report).resolve().is_relative_to(self.config.invocation_params.dir)
        if (
            outside and Path(report).is_dir()
        ):  # pytest then takes it for the place of the tests, and looks for settings there
            raise self.wrong("report", f"{report}: write {name}={report} for a folder that exists outside of this one")

    @property
    def asked_for(self) -> bool:
        """Never: nobody names them on the command line."""
        return False

    @property
    def profile_name(self) -> str:
        """As --attest-profile says."""
        return self.given("profile") or DEFAULT

    @property
    def case_timeout(self) -> float:
        """As --attest-case-timeout says."""
        given = self.given("case-timeout")
        return table.CASE_TIMEOUT.default if given is None else given

    @functools.cached_property
    def seed(self) -> int:
        """As --attest-seed says."""
        return self.given("seed") or 0
