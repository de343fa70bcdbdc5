"""A law: a function of a trial, the cases to draw for it, and what an implementation must declare.

    @law(causal=True, needs=("lse",), bug="masks")
    def test_query_sees_exactly_its_prefix(trial): ...

The decorated name is an ordinary pytest test of (impl, judge). Its attribute `law` is the Law
itself, for callers that judge without pytest (mutants/, tests/). The docstring of the function is
the rule that a failure shows.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.draws import Draws
from flash_attest.properties.failures import undecided_without_memory
from flash_attest.properties.trial import Trial


@dataclass(frozen=True)
class Law:
    """One law.

    bug: its section in docs/why/bugs.md.
    share: how many cases the law gets, as a fraction of the profile's number.
    device: the only device on which the law can fail; None means every device. A law with "cpu" is
    judged on the CPU, also in a run on a GPU.
    once: whether a single case, the simplest, decides, whatever the profile: for cases that take
    long and differ only in details.
    new_process: whether it is judged in a process that has made no call, where that is possible, as
        it is about the first one. The contract is not tried there.
    last: whether it is judged after the implementation's other laws, because a wrong kernel may end
    the process.
    collects: whether the findings of all cases form one set, each with its smallest case
        (judging/collected.py).
    chosen: (implementation) -> cases that are held first, whatever the law's and the
    implementation's share; drawn cases fill up to the profile's number.
    together: called with the trials of all drawn cases before each is judged by itself, to save
    work later. It raises LawBroken if any of them breaks the law.
    """

    function: Callable[[Trial], None]
    draws: Draws
    needs: tuple[str, ...] = ()
    bug: str = ""
    share: float = 1.0
    device: str | None = None
    once: bool = False
    last: bool = False
    collects: bool = False
    chosen: Callable[[Implementation], Iterable[Case]] = lambda impl: ()
    together: Callable[[Iterable[Trial]], None] | None = None
    new_process: bool = False

    def hold(self, trial: Trial) -> None:
        """Run the law. Raises LawBroken, or Undecided if memory runs out, even in the oracle."""
        with undecided_without_memory(f"on {trial.case}"):
            self.function(trial)

    def look_together(self, trials: Iterable[Trial]) -> None:
        """Call `together`, if the law has it. Raises as `hold` does."""
        if self.together:
            with undecided_without_memory("while cases are judged together"):
                self.together(trials)

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def chapter(self) -> str:
        """The name of the law's file without its ending: "test_causal"."""
        return Path(inspect.getfile(self.function)).stem

    @property
    def rule(self) -> str:
        """The docstring: what the law says, and why it holds."""
        return inspect.cleandoc(self.function.__doc__ or "")

    def judged_on(self, device: str) -> str:
        """Return the device on which the law is judged in a run on a device. On a GPU, too, some
        laws are judged on the CPU.
        """
        return self.device or device

    def test_id(self, impl_name: str) -> str:
        """Return the test id: properties/test_causal.py::test_name[impl]."""
        return f"properties/{self.chapter}.py::{self.name}[{impl_name}]"


@cache
def laws() -> dict[str, Law]:
    """Return {name: law} for all laws, in the order of the files."""
    everything = []
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        chapter = importlib.import_module(f"flash_attest.properties.{path.stem}")
        everything += [f.law for f in vars(chapter).values() if hasattr(f, "law") and f.__module__ == chapter.__name__]
    return {law.name: law for law in everything}


def law(
    *,
    needs: tuple[str, ...] = (),
    bug: str,
    share: float = 1.0,
    device: str | None = None,
    once: bool = False,
    last: bool = False,
    collects: bool = False,
    chosen: Callable[[Implementation], Iterable[Case]] = lambda impl: (),
    together: Callable[[Iterable[Trial]], None] | None = None,
    new_process: bool = False,
    **draws: Any,
) -> Callable:
    """Turn a function of a Trial into a pytest test. Other keywords are passed to Draws.of."""
    wanted = Draws.of(**draws)

    def decorate(function: Callable[[Trial], None]) -> Callable:
        new_law = Law(function, wanted, needs, bug, share, device, once, last, collects, chosen, together, new_process)

        def test(impl, judge):
            judge(new_law, impl)

        test.__name__ = test.__qualname__ = function.__name__
        test.__doc__, test.__module__ = function.__doc__, function.__module__
        test.law = new_law
        return test

    return decorate
