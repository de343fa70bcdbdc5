"""The facts of a run: how it judges, and the files that its verdicts depend on."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from functools import cached_property, partial
from pathlib import Path

import pytest

from flash_attest.runner.plugin import inputs, resume, sources
from flash_attest.runner.plugin.chosen import Chosen
from flash_attest.runner.plugin.concerned import concerned
from flash_attest.runner.plugin.environment import environment
from flash_attest.runner.plugin.options import Options
from flash_attest.runner.untrusted.entries import held

COMMAND = "FLASH_ATTEST_COMMAND"  # has the command that the user typed, unless it was pytest


class Facts:
    """The environment of a report, which a later run compares with its own.

    It is made before plug-ins are imported, because they may change the environment variables.
    """

    def __init__(self, config: pytest.Config, options: Options, chosen: Chosen, directory: Path):
        self.options = options
        self.chosen = chosen
        self.directory = directory  # of the report
        self.arguments = [*map(str, config.invocation_params.args)]
        self._environ = dict(os.environ)

    @cached_property
    def _modules_of(self) -> dict[str, set[Path]]:
        """The modules of each plug-in, by its file."""
        return {file: sources.files_of_plugin(file) for file in {entry.file for entry in self.chosen.plugins}}

    def reads(self) -> dict[str, resume.Reads]:
        """Return plug-in -> what it may read."""
        return {
            entry.name: resume.Reads(
                str(Path(entry.file).resolve().parent), partial(concerned, plug_in=entry.file, files=self._modules_of)
            )
            for entry in self.chosen.plugins
            if os.path.isfile(entry.file)
        }

    def _written(self) -> list[Path]:
        """Return the files and folders that the command names, except plug-ins: a run may write
        them.
        """
        typed = [*shlex.split(os.environ.get(COMMAND, "")), *self.arguments]
        words = {os.path.realpath(word.partition("=")[2] if word.startswith("-") else word) for word in typed}
        words -= {os.path.realpath(entry.file) for entry in self.chosen.plugins}
        return [self.directory, *(Path(word) for word in words if os.path.isfile(word))]

    def environment(self, planned: Iterable[str], shard_facts: dict | None) -> dict:
        """Return the environment of the report. planned: the ids of the tests."""
        given = self.options.given
        digests = {file: sources.of_plugin(file, modules) for file, modules in self._modules_of.items()}
        return environment(
            self.options.device,
            seed=self.options.seed,
            profile=self.options.profile_name,
            cases_per_law=self.options.profile.cases,
            repeats=self.options.repeats,
            command=os.environ.get(COMMAND) or shlex.join(["pytest", *self.arguments]),
            options={name: given(name.replace("_", "-")) for name in resume.OPTIONS},
            asked=self.options.asked.as_dict(),
            machine=resume.machine(self.options.device),
            tests=resume.digest_of(planned),
            variables=inputs.variables(self._environ),
            read=inputs.by_folder(self._modules_of, self._environ, self._written()),
            elsewhere=self.chosen.elsewhere,
            sources={
                "the suite": sources.of_suite(),
                **{entry.name: digests[entry.file] for entry in self.chosen.plugins},
            },
            **({"shard": shard_facts} if self.options.shard else {}),
            **({"sandbox": held()} if self.chosen.untrusted else {}),
        )
