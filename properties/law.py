"""What a law is: a function of a trial, the cases that it wants, and what an implementation must declare for it to apply.

    @law(causal=True, needs=("lse",), bug="masks")
    def test_query_sees_exactly_its_prefix(trial): ...

The decorated name is an ordinary pytest test of (impl, judge). The Law itself is its attribute `law`, for callers that judge
without pytest (mutants/, tests/). The docstring of the function is the rule that a failure shows.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from flash_attest.properties.cases.draws import Draws
from flash_attest.properties.failures import undecided_without_memory
from flash_attest.properties.trial import Trial


@dataclass(frozen=True)
class Law:
    """One law. `bug` is its section in docs/why/bugs.md; `share` is its part of the profile's number of cases.

    `device` is where it can fail; None for everywhere. With "cpu" it is judged there, whatever device the run is on.
    `last`: judged after the implementation's other laws, as a wrong kernel may end the process.
    `collects`: its findings of all cases are one set, each with its smallest case (judging/collected.py).
    `together`: gets the trials of all drawn cases before each is judged by itself, to spare later work. It raises LawBroken
    for what breaks the law there, whichever case does it.
    """

    function: Callable[[Trial], None]
    draws: Draws
    needs: tuple[str, ...] = ()
    bug: str = ""
    share: float = 1.0
    device: str | None = None
    last: bool = False
    collects: bool = False
    together: Callable[[Iterable[Trial]], None] | None = None

    def hold(self, trial: Trial) -> None:
        """Try the law. Raises LawBroken, or Undecided if memory ran out anywhere, the oracle included."""
        with undecided_without_memory(f"on {trial.case}"):
            self.function(trial)

    def look_together(self, trials: Iterable[Trial]) -> None:
        """`together`, if the law has it. Raises as `hold` does."""
        if self.together:
            with undecided_without_memory("where cases are looked at together"):
                self.together(trials)

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def chapter(self) -> str:
        """The file of the law without its ending: "test_causal"."""
        return Path(inspect.getfile(self.function)).stem

    @property
    def rule(self) -> str:
        """The docstring: why the law holds."""
        return inspect.cleandoc(self.function.__doc__ or "")

    def test_id(self, impl_name: str) -> str:
        """properties/test_causal.py::test_name[impl]"""
        return f"properties/{self.chapter}.py::{self.name}[{impl_name}]"


@cache
def laws() -> dict[str, Law]:
    """Every law of every chapter, by name, in the order of the files."""
    found = []
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        chapter = importlib.import_module(f"flash_attest.properties.{path.stem}")
        found += [f.law for f in vars(chapter).values() if hasattr(f, "law") and f.__module__ == chapter.__name__]
    return {law.name: law for law in found}


def law(
    *,
    needs: tuple[str, ...] = (),
    bug: str,
    share: float = 1.0,
    device: str | None = None,
    last: bool = False,
    collects: bool = False,
    together: Callable[[Iterable[Trial]], None] | None = None,
    **draws: Any,
) -> Callable:
    """Make a pytest test of a function of a Trial; keywords that are not Law's go to Draws.of."""
    wanted = Draws.of(**draws)

    def decorate(function: Callable[[Trial], None]) -> Callable:
        made = Law(function, wanted, needs, bug, share, device, last, collects, together)

        def test(impl, judge):
            judge(made, impl)

        test.__name__ = test.__qualname__ = function.__name__
        test.__doc__, test.__module__ = function.__doc__, function.__module__
        test.law = made
        return test

    return decorate
