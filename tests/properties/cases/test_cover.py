"""The rows of a cover contain every pair of values, soon."""

from itertools import combinations
from random import Random

import pytest

from flash_attest.properties.cases.cover import COURSE, Cover, Factors

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
    return {
        pair for row in rows for pair in combinations(sorted((name, i) for name, i in row.items() if name != "rare"), 2)
    }


def possible(values):
    """Return all pairs of two factors' values."""
    several = {(name, i) for name in "abcd" for i in range(len(values[name]))}
    return {pair for pair in combinations(sorted(several), 2) if pair[0][0] != pair[1][0]}


@pytest.mark.parametrize("number", range(5))
def test_every_pair_is_met_soon(number):
    """20 rows are needed at least, as two factors have four and five values."""
    assert pairs(rows(28, number)) == possible(VALUES)


def test_each_row_has_an_index_for_each_factor_with_several_values():
    for row in rows(50):
        assert row.keys() == VALUES.keys() - {"alone"}
        assert all(index in range(len(VALUES[name])) for name, index in row.items())


@pytest.mark.parametrize("number", range(5))
def test_the_first_rows_contain_more_pairs_than_independent_ones(number):
    random = Random(number)
    drawn = [{name: random.randrange(len(VALUES[name])) for name in "abcd"} for _ in range(8)]
    assert len(pairs(rows(8, number))) >= 44 and len(pairs(drawn)) <= 40  # of 48 in 8 rows


def test_when_every_pair_was_met_it_begins_again_with_other_rows():
    first, second = rows(60)[:28], rows(60)[28:]
    assert pairs(second) == possible(VALUES) and first != second[:28]


def test_rows_follow_from_the_number():
    assert rows(30) == rows(40)[:30] != rows(30, 1)


def test_impossible_pairs_are_never_met():
    factors = Factors(VALUES, rare={"rare": 5}, impossible=(BOTH, (("a", 1), ("unknown", 2))))
    a, d = (VALUES[name].index(value) for name, value in BOTH)
    met = pairs(rows(60, factors=factors))
    assert possible(VALUES) - met == {(("a", a), ("d", d))}


@pytest.mark.parametrize("number", range(3))
def test_a_rare_value_is_in_one_row_of_five(number):
    drawn = [row["rare"] for row in rows(50, number)]
    assert sum(map(bool, drawn)) == 10 and set(drawn) == {0, 1, 2}
    assert (
        len({drawn.index(next(filter(None, drawn))) for drawn in [[r["rare"] for r in rows(9, n)] for n in range(40)]})
        == 5
    )


def test_a_choice_has_the_index_of_its_case():
    row: dict = {}
    with COURSE.from_the_start(3):
        with COURSE.choosing(FACTORS, "d"):
            assert not COURSE.begun
            index = COURSE.index(row)
            assert COURSE.begun and COURSE.index(row) == index == row["d"]
        assert COURSE.index(row) is None  # no choice is being drawn
    with COURSE.choosing(FACTORS, "d"):
        assert COURSE.index({}) is None  # there is no cover
    assert row == rows(1, 3)[0]
