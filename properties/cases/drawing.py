"""Draws cases through Hypothesis, so that a seed fixes them: whatever else is loaded, judged, or was judged before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, Phase, Verbosity, given, reject, seed, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import HypothesisProvider

from properties.cases.case import Case
from properties.failures import AnotherCase


def draw_each(
    strategy: st.SearchStrategy[Case], number: int, examples: int, hold: Callable[[Case], None], *, shrink: bool = True
) -> None:
    """Call hold on `examples` cases, drawn from the seed `number`. A case for which it raises AnotherCase does not count.

    Any other exception ends the search. It is raised again for the smallest case for which Hypothesis finds it, or at once.
    """

    def on_drawn(case: Case) -> None:
        try:
            hold(case)
        except AnotherCase:
            reject()

    configured = settings(
        max_examples=examples,
        database=None,  # the same cases in every run; a failing case is kept as its replay line
        phases=(Phase.generate, *((Phase.shrink,) if shrink else ())),
        deadline=None,
        derandomize=False,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
        backend="hypothesis",
    )
    with seed_alone():
        seed(number)(configured(given(case=strategy)(on_drawn)))()


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
