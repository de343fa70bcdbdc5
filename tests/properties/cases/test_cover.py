"""The rows of a cover contain every pair of values, soon."""

from itertools import combinations
from random import Random

import pytest

from flash_attest.properties.cases.cover import COURSE, Cover, Dealt, Factors

VALUES = {
    "a": (1, 2, 3),
    "b": tuple("wxyz"),
    "c": (False, True),
    "d": (0, 1, 2, 3, 4),
    "alone": (7,),
    "rare": (0, 1, 2),
}
FACTORS = Factors(VALUES, rare={"rare": 5})
BOTH = (("a", 1), ("d", 4))


def rows(n, number=0, factors=FACTORS):
    cover = Cover(factors, Random(number))
    return [cover.row() for _ in range(n)]


def pairs(rows):
    """Return the pairs of two factors' values that the rows contain, without rare factors."""
    return {pair for row in rows for pair in combinations([(name, row[name]) for name in "abcd"], 2)}


def possible(values):
    """Return all pairs of two factors' values."""
    several = [(name, value) for name in "abcd" for value in values[name]]
    return {pair for pair in combinations(several, 2) if pair[0][0] != pair[1][0]}


@pytest.mark.parametrize("number", range(5))
def test_every_pair_is_met_soon(number):
    """20 rows are needed at least, as two factors have four and five values."""
    assert pairs(rows(28, number)) == possible(VALUES)


def test_each_row_has_a_value_of_each_factor_and_details():
    factors = Factors(VALUES, rare={"rare": 5}, details=lambda row, random: {"more": (row["b"], random.randint(1, 3))})
    drawn = rows(50, factors=factors)
    for row in drawn:
        assert row.keys() == {*VALUES, "more"} and all(row[name] in values for name, values in VALUES.items())
        assert row["more"][0] == row["b"]
    assert {row["more"][1] for row in drawn} == {1, 2, 3}


@pytest.mark.parametrize("number", range(5))
def test_the_first_rows_contain_more_pairs_than_independent_ones(number):
    random = Random(number)
    drawn = [{name: random.choice(VALUES[name]) for name in "abcd"} for _ in range(8)]
    assert len(pairs(rows(8, number))) >= 44 and len(pairs(drawn)) <= 40  # of 48 in 8 rows


def test_when_every_pair_was_met_it_begins_again_with_other_rows():
    first, second = rows(60)[:28], rows(60)[28:]
    assert pairs(second) == possible(VALUES) and first != second[:28]


def test_rows_follow_from_the_number():
    assert rows(30) == rows(40)[:30] != rows(30, 1)


def test_impossible_pairs_are_never_met():
    factors = Factors(VALUES, rare={"rare": 5}, impossible=(BOTH, (("a", 1), ("unknown", 2))))
    assert possible(VALUES) - pairs(rows(60, factors=factors)) == {BOTH}


@pytest.mark.parametrize("number", range(3))
def test_a_rare_value_is_in_one_row_of_five(number):
    drawn = [row["rare"] for row in rows(50, number)]
    assert sum(map(bool, drawn)) == 10 and set(drawn) == {0, 1, 2}
    assert (
        len({drawn.index(next(filter(None, drawn))) for drawn in [[r["rare"] for r in rows(9, n)] for n in range(40)]})
        == 5
    )


@pytest.mark.parametrize("number", range(3))
def test_every_second_row_has_simple_values_and_the_others_have_all_or_divide_them(number):
    factors = Factors(VALUES, rare={}, alone=("b", "c", "d"))
    on = [{name for name in "bcd" if row[name] != VALUES[name][0]} for row in rows(60, number, factors)]
    assert not any(on[::2])
    for every, one, other in zip(on[1::6], on[3::6], on[5::6], strict=True):
        assert every == set("bcd") == one | other and not one & other and len(one) in (1, 2)
    assert len(set(map(frozenset, on[3::6]))) > 2  # each time in another way


def test_a_field_has_the_value_of_the_row():
    row: dict = {}
    with COURSE.from_the_start(3):
        with COURSE.drawing(FACTORS, "b", ("w", "z", "y", "x")):
            assert not COURSE.begun
            assert COURSE.integer(row) == ("w", "z", "y", "x").index(row["b"]) and COURSE.begun
        with COURSE.drawing(FACTORS, "d", None):
            assert COURSE.integer(row) == row["d"]
        for name, values in (("unknown", None), ("a", (7, 8))):
            with COURSE.drawing(FACTORS, name, values):
                assert COURSE.integer(row) is None  # anything may be drawn
        assert COURSE.integer(row) is None  # no field is being drawn
    with COURSE.drawing(FACTORS, "d", None):
        assert COURSE.integer({}) is None  # there is no cover
    assert row == rows(1, 3)[0]


def test_choices_are_dealt_like_cards():
    random, values = Dealt(7), (2, 3, 4, 5, 7)
    first, second = ([random.choice(values) for _ in values] for _ in range(2))
    assert sorted(first) == sorted(second) == list(values) and first != second
    assert [Dealt(7).choice((1, 1, 2)) for _ in range(3)] == 3 * [Dealt(7).choice((1, 1, 2))]
