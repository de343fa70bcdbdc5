"""Draws cases through Hypothesis so that they depend only on the seed.

They do not depend on loaded modules, or on anything that was judged before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, Phase, Verbosity, given, reject, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

from flash_attest.properties.cases import cover
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.cover import COURSE, NoCase
from flash_attest.properties.failures import AnotherCase


class CoveringProvider(HypothesisProvider):
    """Draws as Hypothesis does, but gives a field the value that the row of the case has.

    Hypothesis' own backend would also make up to five of six cases by copying a choice of the
    previous case to another position: seqlen_q=31 five times in a row, or headdim=1 in a third of a
    run. A provider with another name is not treated in this way. Shrinking uses Hypothesis' own.
    """

    def __init__(self, data: Any, /):
        super().__init__(data)
        self._row: dict[str, Any] = {}

    def draw_integer(self, *bounds: Any, **options: Any) -> int:
        number = COURSE.integer(self._row)
        return super().draw_integer(*bounds, **options) if number is None else number


COVERING = "covering"
AVAILABLE_PROVIDERS[COVERING] = f"{CoveringProvider.__module__}.{CoveringProvider.__qualname__}"

# How many cases are drawn before the first is judged. In the default profile, these are all cases
# of a law. Other profiles have hundreds of cases. A failing law needs only a few, and drawing all
# takes longer than judging these few.
DRAWN_FIRST = 60


TRIED = 20  # how many cases are tried for each one that counts, after cover.FIRST_TRIED


class NothingSaid(Unsatisfiable):
    """The law says nothing about any case that was drawn. The text is its last reason, or ""."""


@dataclass(frozen=True)
class Drawing:
    """`examples` cases of a strategy, drawn from the seed `number`.

    No case depends on the result of a previous one. Many cases are drawn at once. This takes a
    third to a half of the time that Hypothesis needs if each case is judged before the next is
    drawn, because its data is then no longer in the cache.

    once: whether the simplest case comes first, and alone if it counts.
    """

    strategy: st.SearchStrategy[Case]
    number: int
    examples: int
    once: bool = False

    @cached_property
    def cases(self) -> list[Case]:
        """One case for each row of the cover. Raises Unsatisfiable if there are none."""
        return self._first(self.examples)

    def hold_each(self, hold: Callable[[Case], None]) -> None:
        """Call hold on each case.

        If hold raises AnotherCase, the case does not count and another one is drawn. Any other
        Exception ends the loop. Hypothesis then looks for the smallest case that raises it, and
        this exception is raised. A BaseException is raised at once. Raises NothingSaid if no case
        counts, and Unsatisfiable if there is none.
        """
        held, failure, why = 0, None, ""
        for position, case in enumerate(self._without_end()):
            if position == cover.FIRST_TRIED + TRIED * held:
                break
            try:
                hold(case)
                held += 1
            except AnotherCase as discarded:
                why = str(discarded) or why
            except Exception as error:
                failure = error
            if failure is not None:  # not in the handler, where Hypothesis would see another failure
                self._shrink(position, failure, hold)
            if held == self.examples:
                return
        if not held:
            raise NothingSaid(why)

    def _without_end(self) -> Iterator[Case]:
        """Yield the cases, then further ones until there are no more, twice as many each time."""
        cases, done = self.cases if self.examples <= DRAWN_FIRST else self._first(DRAWN_FIRST), 0
        while len(cases) > done:
            yield from cases[done:]
            done = len(cases)
            cases = self.cases if done < self.examples else self._first(2 * done)  # begins with the earlier cases

    def _first(self, number: int) -> list[Case]:
        """Return this many cases; the simplest one if there are no others."""
        cases: list[Case] = []
        simplest: list[Case] = []

        def keep(case: Case) -> None:
            (cases if COURSE.begun else simplest).append(case)

        with suppress(Unsatisfiable):  # the simplest case may be there alone
            self._run(number + 1, (Phase.generate,), keep)
        if self.once:
            cases = simplest + cases
        if not (cases := cases[:number] or simplest):
            raise Unsatisfiable
        return cases

    def _shrink(self, position: int, failure: Exception, hold: Callable[[Case], None]) -> None:
        """Shrink the failing case at this position, and raise the failure of the smallest.

        If the simplest case fails as well, nothing is left to shrink.
        """
        drawn = 0

        def hold_from_there(case: Case) -> None:
            nonlocal drawn
            if not COURSE.begun:
                self._hold_simplest(case, failure, hold)
                return
            drawn += 1
            if drawn <= position:
                return
            if drawn == position + 1:
                raise failure
            try:
                hold(case)
            except AnotherCase:
                reject()

        with suppress(Unsatisfiable):  # fewer cases are drawn this time, or none, if `accepts` changes its answer
            self._run(position + 2, (Phase.generate, Phase.shrink), hold_from_there)
        raise failure

    def _hold_simplest(self, case: Case, failure: Exception, hold: Callable[[Case], None]) -> None:
        """Call hold. Raises what it raises if this is of the same type as the failure."""
        try:
            hold(case)
        except AnotherCase:
            reject()
        except Exception as error:
            if type(error) is type(failure):
                raise

    def _run(self, number: int, phases: tuple[Phase, ...], on_drawn: Callable[[Case], None]) -> None:
        configured = settings(
            max_examples=number,
            database=None,  # not needed: every run draws the same cases, and a failing one has its replay line
            phases=phases,
            deadline=None,
            derandomize=False,
            print_blob=False,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
            backend=COVERING,
        )
        with seed_alone(), COURSE.from_the_start(self.number):
            try:
                seed(self.number)(configured(given(case=self.strategy)(on_drawn)))()
            except NoCase:
                raise Unsatisfiable from None


@contextmanager
def seed_alone() -> Iterator[None]:
    """Make Hypothesis draw from its seed alone in this block.

    By default, one integer in twenty is a constant from the source of a loaded module that is not
    an installed package: another plug-in, or a file of ours that a law imports late. Hypothesis has
    no setting for this, and the method is private. If a new version of Hypothesis drops the method,
    it collects no constants, or test_seeds.py fails.
    """
    if not hasattr(HypothesisProvider, "_maybe_draw_constant"):
        yield
        return
    with mock.patch.object(HypothesisProvider, "_maybe_draw_constant", _no_constant):
        yield


def _no_constant(self: HypothesisProvider, *arguments: Any, **options: Any) -> None:
    return None
