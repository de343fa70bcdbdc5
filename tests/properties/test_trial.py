"""A trial of an implementation that raises, or breaks its contract: the law is broken, in the words of what was raised."""

import pytest

from impls import torch_math
from properties.judging import conformance
from properties.trial import Trial
from tests.trials import broken, implementation, trial

pytestmark = pytest.mark.usefixtures("one_thread")


def raising(error: Exception):
    def forward(q, k, v):
        raise error

    return forward


def test_an_exception_breaks_the_law_in_its_own_words():
    t = Trial(implementation(raising(RuntimeError("no kernel image\nfor this device"))), trial().case, "cpu")
    assert broken(t.run).headline == "forward raises RuntimeError: no kernel image"


def test_a_bare_exception_has_no_colon_behind_it():
    t = Trial(implementation(raising(AssertionError())), trial().case, "cpu")
    assert broken(t.run).headline == "forward raises AssertionError"


def test_a_broken_contract_breaks_the_law_with_every_problem():
    t = Trial(implementation(lambda q, k, v: q[:1].half()), trial().case, "cpu")
    found = broken(t.run)
    assert "shape" in found.headline and "dtype" in found.observed[0]


def test_verdicts_on_the_contract_are_not_mixed_up():
    """An implementation that is made after another one was forgotten may get its id()."""
    answers = []
    for forward in [torch_math.forward, lambda q, k, v: (q, q)] * 10:
        answers.append(bool(conformance.problems(implementation(forward, lse="natural"), "cpu")))
    assert answers == [False, True] * 10
