"""What the options of a run choose: implementations, device, profile, seed, and how they are called."""

from __future__ import annotations

import shlex

import pytest
import torch

from flash_attest.impls.contract import registry
from flash_attest.impls.contract.registry import Entry, RegistryError
from flash_attest.runner.isolation import importing
from flash_attest.runner.isolation.parent import possible
from flash_attest.runner.plugin.options import perturb_option, seed_option, shard_option
from flash_attest.runner.profiles import DEFAULT, PROFILES
from flash_attest.runner.untrusted.entries import check_options
from flash_attest.runner.untrusted.entries import from_file as untrusted_entries


class Chosen:
    """In each pytest process the same: a worker gets from its controller what only one of them can decide."""

    def __init__(self, config: pytest.Config):
        self.config = config
        self.worker = getattr(config, "workerinput", None)
        self.seed = self.worker["attest_seed"] if self.worker else seed_option(config)
        self.profile_name = config.getoption("hypothesis_profile") or DEFAULT
        self.profile = PROFILES[self.profile_name]
        self.shard = shard_option(config)
        self.perturbations = perturb_option(config, self.device)
        self.unloadable: dict[str, str] = self.worker["attest_unloadable"] if self.worker else {}  # by --impl-from: why
        self._plugins: list[Entry] | None = None
        self._entries: list[Entry] | None = None

    @property
    def entries(self) -> list[Entry]:
        """The selected implementations, by name; a selection that makes no sense ends the run with a usage error."""
        if self._entries is None:
            names = self.config.getoption("--impl")
            try:
                if self.untrusted:
                    check_options(self.config.getoption("--impl-from"), names)
                self._entries = registry.choose(self.plugins, names, alone=bool(self.config.getoption("--impl-from")))
            except RegistryError as error:
                raise pytest.UsageError(str(error)) from None
        return self._entries

    def _from_file(self, argument: str) -> list[Entry]:
        """The entries of a file. It is imported in another process first; what workers import, their controller has tried."""
        if self.untrusted:
            return untrusted_entries(argument, self.case_timeout)
        if argument not in self.unloadable:
            tried = self.worker is not None or not self.may_isolate or not registry.can_be_tried(argument)
            self.unloadable[argument] = "" if tried else importing.problem_of(argument, self.case_timeout)
        if problem := self.unloadable[argument]:
            return [importing.unloadable(argument, problem)]
        return importing.imported(argument)

    @property
    def plugins(self) -> list[Entry]:
        """The implementations that are not ours."""
        if self._plugins is None:
            try:
                files = self.config.getoption("--impl-from")
                found = [entry for argument in files for entry in self._from_file(argument)]
            except RegistryError as error:
                raise pytest.UsageError(str(error)) from None
            modules = [name for name in self.config.getoption("plugins") if not name.startswith("no:")]
            via = " ".join(f"-p {shlex.quote(name)}" for name in modules)
            found += registry.from_hook(self.config.hook.pytest_attention_impls(config=self.config), via)
            self._plugins = found
        return self._plugins

    @property
    def untrusted(self) -> bool:
        """Whether the files of --impl-from are imported in a kernel process only."""
        return self.config.getoption("--untrusted")

    @property
    def may_isolate(self) -> bool:
        """Whether implementations are called in processes of their own where that can be done."""
        return possible() and not self.config.getoption("--no-isolation")

    @property
    def isolated(self) -> bool:
        """Whether they are in this process: a fork of one that has used CUDA could not use it."""
        if self.device() == "cuda" and torch.cuda.is_initialized():
            return False
        return self.may_isolate

    @property
    def case_timeout(self) -> float:
        """As --case-timeout says: seconds for a call; 0 for no limit."""
        return self.config.getoption("--case-timeout")

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
