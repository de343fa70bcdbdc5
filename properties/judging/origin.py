"""The origin of an implementation: how to replay its cases, and how another process loads it."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

DECORATED = "--decorated"  # precedes the arguments that collect decorated tests
NUMBERS = {"emulated", "case-timeout"}  # options whose value is a number in a script


class Origin(ABC):
    """The origin of an implementation. Each kind is a frozen dataclass."""

    def replay(
        self, test: str, case: str = "", perturbations: str = "", device: str = "", emulated: str = "", timeout: str = ""
    ) -> str:  # fmt: skip
        """Return the shell command that judges one law again: the line under Replay.

        test: the id of the law's test, as Law.test_id returns it. case: as for --case; "" means all
        cases. perturbations, device, emulated, timeout: "" if the command need not name them;
        timeout: of a call, in seconds.
        """
        values = {
            "perturb": perturbations, "device": device, "emulated": emulated, "case-timeout": timeout, "case": case,
        }  # fmt: skip
        return self._command(test, {name: value for name, value in values.items() if value})

    @abstractmethod
    def _command(self, test: str, options: Mapping[str, str]) -> str:
        """Return the command, with these options by their names in runner/plugin/table.py."""

    @abstractmethod
    def again(self) -> list[str] | None:
        """Return pytest arguments that load the implementation in another process, or None."""


@dataclass(frozen=True)
class OwnRun(Origin):
    """Found by a run of the suite itself.

    option: --impl-from=FILE or -p MODULE, quoted for a shell; "" for an implementation in impls/.
    """

    option: str = ""

    def _command(self, test: str, options: Mapping[str, str]) -> str:
        """Return: pytest 'properties/test_causal.py::test_name[mine]' OPTION --case '...'."""
        return _joined("pytest", shlex.quote(test), self.option, *_given("--", options))

    def again(self) -> list[str]:
        """Return `option`, split into arguments."""
        return shlex.split(self.option)


@dataclass(frozen=True)
class Checked(Origin):
    """Judged by `flash-attest check`.

    target: the argument of the command. name: the name of the implementation if the target has
    several; "" if it has one. option: how pytest finds it, as in OwnRun.
    """

    target: str
    name: str = ""
    option: str = ""

    def _command(self, test: str, options: Mapping[str, str]) -> str:
        """Return: flash-attest check mine.py --law test_name --case '...'."""
        named = _joined(
            *["--untrusted"] * self.option.startswith("--untrusted"), f"--impl {self.name}" * bool(self.name)
        )
        law = f"--law {_law_in(test).removeprefix('test_')}"
        return _joined("flash-attest check", shlex.quote(self.target), named, law, *_given("--", options))

    def again(self) -> list[str]:
        """Return `option`, split into arguments."""
        return shlex.split(self.option)


@dataclass(frozen=True)
class DecoratedTest(Origin):
    """Judged by @attention_laws in a user's repository.

    tests: the name of each law -> the id of its test, tests/test_attn.py::test_attention[name],
    relative to the folder in which pytest was started. collected: the pytest arguments that collect
    these tests there.
    """

    tests: Mapping[str, str]
    collected: tuple[str, ...]

    def _command(self, test: str, options: Mapping[str, str]) -> str:
        """Return: pytest 'tests/test_attn.py::test_attention[name]' --attest-case '...'."""
        item = self.tests.get(_law_in(test), test)
        return _joined("pytest", shlex.quote(item), *_given("--attest-", options))

    def again(self) -> list[str]:
        """Return the arguments with which runner/alone.py collects the same tests."""
        return [DECORATED, *self.collected]


@dataclass(frozen=True)
class Scripted(Origin):
    """Passed to flash_attest.check by a script. name: the name of the implementation."""

    name: str

    def _command(self, test: str, options: Mapping[str, str]) -> str:
        """Return: flash_attest.check(mine, laws=['name'], case='...')."""
        more = "".join(
            f", {name.replace('-', '_')}={value if name in NUMBERS else repr(value)}" for name, value in options.items()
        )
        return f"flash_attest.check({self.name}, laws={[_law_in(test).removeprefix('test_')]}{more})"

    def again(self) -> None:
        """Return None: no other process has the script's functions."""


OURS = OwnRun()


def _law_in(test: str) -> str:
    """Return the name of the law: "properties/test_causal.py::test_name[mine]" -> "test_name"."""
    return test.rpartition("::")[2].partition("[")[0]


def _given(prefix: str, options: Mapping[str, str]) -> list[str]:
    return [f"{prefix}{name} {shlex.quote(value)}" for name, value in options.items()]


def _joined(*parts: str) -> str:
    return " ".join(filter(None, parts))
