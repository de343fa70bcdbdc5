"""A law's cases are drawn, and a failing one is shrunk."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis.errors import Unsatisfiable

from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.cover import COURSE, FIRST_TRIED
from flash_attest.properties.cases.drawing import DRAWN_FIRST, TRIED, Drawing
from flash_attest.properties.cases.draws import Draws
from flash_attest.properties.cases.strategies import attention_cases
from flash_attest.properties.failures import AnotherCase, LawBroken, Undecided
from tests.properties.cases.drawing import ALL, ANY, implementation

NOTHING = Draws.of(where=lambda case: False)


def drawing(examples=60, number=0, draws=ANY):
    return Drawing(attention_cases(ALL, "cpu", draws), number, examples)


def held(drawing, hold=lambda case: None):
    """Return the cases that hold_each passes on, in their order."""
    cases = []

    def keep(case):
        cases.append(case)
        hold(case)

    drawing.hold_each(keep)
    return cases


@pytest.fixture
def drawn(monkeypatch):
    """Records how many cases each call of Hypothesis was asked for."""
    numbers, first = [], Drawing._first
    monkeypatch.setattr(Drawing, "_first", lambda self, number: numbers.append(number) or first(self, number))
    return numbers


def test_a_larger_number_begins_with_the_same_cases():
    few, many = drawing(20).cases, drawing(200).cases
    assert many[:20] == few and len(many) == 200
    assert drawing(20, number=1).cases != few


def test_the_first_case_is_not_the_simplest_one():
    """A case with one query, key and column shows few bugs, and many laws have two cases only."""
    (first,) = drawing(1).cases
    assert first.seqlen_q * first.seqlen_k * first.headdim > 1


def test_where_there_is_only_one_case_it_is_the_simplest():
    only = drawing(5, draws=Draws.of(where=lambda case: str(case) == "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32"))
    assert [str(case) for case in only.cases] == ["seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32"]


def test_where_every_case_fails_the_simplest_is_tried_before_shrinking():
    calls = []

    def hold(case):
        calls.append(case)
        raise LawBroken(str(case))

    with pytest.raises(LawBroken, match=r"^seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32$"):
        drawing(5).hold_each(hold)
    assert len(set(calls)) == 2


def test_the_simplest_case_is_not_the_result_where_it_is_undecided():
    def hold(case):
        if case.seqlen_q > 1:
            raise LawBroken(str(case))
        if case == Case(headdim=1):
            raise Undecided(str(case))

    with pytest.raises(LawBroken, match=r"^seqlen_q=2 seqlen_k=\d+ headdim=1 dtype=float32"):
        drawing(5).hold_each(hold)


@pytest.mark.parametrize("number", [0, *(pytest.param(number, marks=pytest.mark.thorough) for number in (1, 2))])
def test_a_case_is_not_made_from_the_one_before(number):
    """Hypothesis' own backend would give two cases in three a length of the previous case.

    Most cases share one value of some field.
    """
    cases = drawing(400, number).cases
    assert len(set(cases)) >= 398
    for field, most in (("seqlen_q", 0.15), ("headdim", 0.2), ("regime", 0.15), ("bias_mask", 0.6)):
        values = [getattr(case, field) for case in cases]
        assert Counter(values).most_common(1)[0][1] <= most * len(cases), field
    again = sum(case.seqlen_q == before.seqlen_q for before, case in pairwise(cases))
    assert again <= 0.15 * len(cases)


@pytest.mark.parametrize("examples", (60, 150))
def test_each_case_is_held_once(examples):
    asked = drawing(examples)
    assert held(asked) == asked.cases


def test_few_cases_are_drawn_where_an_early_one_fails(drawn):
    def hold(case):
        raise LawBroken(str(case))

    with pytest.raises(LawBroken):
        drawing(10 * DRAWN_FIRST).hold_each(hold)
    assert drawn == [DRAWN_FIRST]


def test_a_case_that_says_nothing_is_replaced():
    def hold(case):
        if case.seqlen_q % 2:
            raise AnotherCase

    asked = drawing(30)
    cases = held(asked, hold)
    assert cases == drawing(len(cases)).cases
    assert sum(case.seqlen_q % 2 == 0 for case in cases) == 30 and cases[-1].seqlen_q % 2 == 0


def test_without_any_case_nothing_is_held():
    with pytest.raises(Unsatisfiable):
        held(drawing(draws=NOTHING))


@pytest.mark.parametrize("examples", [5, pytest.param(40, marks=pytest.mark.thorough), 400])
def test_without_a_case_that_says_something_it_ends(examples, drawn):
    begun = []

    def hold(case):
        begun.append(case)
        raise AnotherCase

    with pytest.raises(Unsatisfiable):
        drawing(examples).hold_each(hold)
    assert len(begun) == FIRST_TRIED
    assert sum(drawn) < 4 * max(FIRST_TRIED, examples)  # where a law says nothing, drawing takes no longer than it must


def test_too_few_cases_that_say_something_are_enough():
    fourth = drawing(10).cases[3]

    def hold(case):
        if case != fourth:
            raise AnotherCase

    assert len(held(drawing(10), hold)) == FIRST_TRIED + TRIED


@pytest.mark.parametrize("error", (LawBroken, Undecided))
def test_what_fails_is_shrunk(error):
    """Earlier cases are not run again, and the failure that is raised last has the smallest
    case.
    """
    asked, calls = drawing(60, number=3), []

    def hold(case):
        calls.append(case)
        if case.seqlen_k > 100 and case.headdim > 60:
            raise error(str(case))

    with pytest.raises(error) as raised:
        asked.hold_each(hold)
    position = next(n for n, case in enumerate(asked.cases) if case.seqlen_k > 100 and case.headdim > 60)
    assert position > 2 and calls[: position + 1] == asked.cases[: position + 1]
    assert not set(asked.cases[1:position]) & set(calls[position + 1 :])
    assert "seqlen_k=101 headdim=61 " in str(raised.value)


def test_what_is_no_exception_ends_it_at_once():
    class Stop(BaseException):
        pass

    calls = []

    def hold(case):
        calls.append(case)
        if len(calls) == 4:
            raise Stop

    with pytest.raises(Stop):
        drawing().hold_each(hold)
    assert len(calls) == 4


def test_a_failure_is_not_lost_where_accepts_changes_its_mind():
    """No cases are left when they are drawn again."""
    begun = []

    def accepts(case):
        return "no more" if begun else None

    def hold(case):
        if case.seqlen_q > 40:
            begun.append(case)
            raise LawBroken(str(case))

    fickle = implementation("fickle", accepts=accepts, headdims={8})
    with pytest.raises(LawBroken) as raised:
        Drawing(attention_cases(fickle, "cpu", ANY), 0, 20).hold_each(hold)
    assert [str(raised.value)] == [str(case) for case in begun]


def test_where_nothing_fits_few_are_tried(monkeypatch):
    refused, refuse = [], COURSE.refuse
    monkeypatch.setattr(COURSE, "refuse", lambda: refused.append(1) or refuse())
    with pytest.raises(Unsatisfiable):
        drawing(5, draws=NOTHING).hold_each(lambda case: None)
    assert len(refused) == FIRST_TRIED
    rare = Draws.of(where=lambda case: case.seqlen_q == 1 and case.seqlen_k > 1)
    assert len(drawing(5, draws=rare).cases) == 5 and len(refused) > FIRST_TRIED
