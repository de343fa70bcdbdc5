"""Draws cases through Hypothesis, so that a seed fixes them: whatever else is loaded, judged, or was judged before."""

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

from flash_attest.properties.cases.case import Case
from flash_attest.properties.failures import AnotherCase

# Hypothesis' own backend makes up to five of six cases from the one before, in which it copies one choice to another place:
# seqlen_q=31 five times in a row, a third of a run with headdim=1. Under another name the same provider draws every case by
# itself. Hypothesis still shrinks with its own.
INDEPENDENT = "independent"
AVAILABLE_PROVIDERS[INDEPENDENT] = f"{HypothesisProvider.__module__}.{HypothesisProvider.__qualname__}"

# How many are drawn before the first is judged: all that a law has by default. Other profiles have hundreds, of which a law
# that fails needs a few; drawing all of them takes longer than judging those.
DRAWN_FIRST = 60

# How many cases are tried for each that counts, and before the first one: enough to find one where one in fifty does.
TRIED, FIRST_TRIED = 20, 200


@dataclass(frozen=True)
class Drawing:
    """`examples` cases of a strategy, from the seed `number`.

    No case depends on the one before, or on what was found for it. So many are drawn in one go, which takes a half to a
    third of the time that Hypothesis needs if each is judged before the next is drawn, and its memory is no longer cached.
    """

    strategy: st.SearchStrategy[Case]
    number: int
    examples: int

    @cached_property
    def cases(self) -> list[Case]:
        """The simplest one, then random ones. Raises Unsatisfiable if there are none."""
        return self._first(self.examples)

    def hold_each(self, hold: Callable[[Case], None]) -> None:
        """Call hold on each case. One for which it raises AnotherCase does not count: a further one is drawn in its place.

        Any other exception ends it, and is raised again for the smallest case for which Hypothesis finds it; one that is no
        Exception is raised at once. Raises Unsatisfiable if no case counts.
        """
        held, failure = 0, None
        for place, case in enumerate(self._without_end()):
            if place == FIRST_TRIED + TRIED * held:
                break
            try:
                hold(case)
                held += 1
            except AnotherCase:
                pass
            except Exception as error:
                failure = error
            if failure is not None:  # not in the handler: for Hypothesis what is raised there is a failure of its own
                self._shrink(place, failure, hold)
            if held == self.examples:
                return
        if not held:
            raise Unsatisfiable("the law says nothing about any case")

    def _without_end(self) -> Iterator[Case]:
        """The cases, then as many further ones, and so on, while there are any."""
        cases, done = self.cases if self.examples <= DRAWN_FIRST else self._first(DRAWN_FIRST), 0
        while len(cases) > done:
            yield from cases[done:]
            done = len(cases)
            cases = self.cases if done < self.examples else self._first(2 * done)  # begin with the ones before

    def _first(self, number: int) -> list[Case]:
        cases: list[Case] = []

        def keep(case: Case) -> None:
            cases.append(case)

        self._run(number, (Phase.generate,), keep)
        return cases

    def _shrink(self, place: int, failure: Exception, hold: Callable[[Case], None]) -> None:
        """Raise the failure of the case at this place for the smallest case for which Hypothesis finds it."""
        drawn = 0

        def hold_from_there(case: Case) -> None:
            nonlocal drawn
            drawn += 1
            if drawn <= place:
                return
            if drawn == place + 1:
                raise failure
            try:
                hold(case)
            except AnotherCase:
                reject()

        with suppress(Unsatisfiable):  # `accepts` does not always say the same: fewer cases came, or none
            self._run(place + 1, (Phase.generate, Phase.shrink), hold_from_there)
        raise failure

    def _run(self, number: int, phases: tuple[Phase, ...], on_drawn: Callable[[Case], None]) -> None:
        configured = settings(
            max_examples=number,
            database=None,  # the same cases in every run; a failing case is kept as its replay line
            phases=phases,
            deadline=None,
            derandomize=False,
            print_blob=False,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
            backend=INDEPENDENT,
        )
        with seed_alone():
            seed(self.number)(configured(given(case=self.strategy)(on_drawn)))()


@contextmanager
def seed_alone() -> Iterator[None]:
    """In this block Hypothesis draws from its seed alone.

    Otherwise one integer in twenty is a constant found in the source of some loaded module that is not installed: a plug-in
    beside the one that is judged, or a file of ours that a law imports late. There is no setting for it, and the method is
    private. A version of Hypothesis that has no such method collects no constants, or test_seeds.py fails.
    """
    if not hasattr(HypothesisProvider, "_maybe_draw_constant"):
        yield
        return
    with mock.patch.object(HypothesisProvider, "_maybe_draw_constant", _no_constant):
        yield


def _no_constant(self: HypothesisProvider, *arguments: Any, **options: Any) -> None:
    return None
