"""Lengths meet the edges of tiles, of the other length and of other sizes, with several heads."""

from itertools import product
from random import Random

import pytest

from flash_attest.properties.cases.case import LAYOUTS, Case
from flash_attest.properties.cases.drawing import Drawing
from flash_attest.properties.cases.draws import ANYTHING, Draws
from flash_attest.properties.cases.lengths import AS_MANY, NEAR, Lengths
from flash_attest.properties.cases.limits import Limits, within
from flash_attest.properties.cases.strategies import attention_cases
from flash_attest.properties.cases.telling import telling
from flash_attest.properties.test_causal import toward_tiles
from tests.properties.cases.drawing import ALL

CPU = Limits.on("cpu")
LENGTHS = Lengths(ALL, ANYTHING, CPU.seqlen, 1)


def of(kind, near_q="any", near_k="any", n=200):
    """Return pairs of lengths of these classes."""
    return [LENGTHS.of({"lengths": kind, "near_q": near_q, "near_k": near_k}, Random(seed)) for seed in range(n)]


@pytest.mark.parametrize(("kind", "more"), [("more keys", 1), ("more queries", -1)])
def test_two_lengths_in_order_are_often_a_tile_apart(kind, more):
    """A tile of queries then sees no key, or a tile of keys is seen by all queries."""
    apart = [more * (seqlen_k - seqlen_q) for seqlen_q, seqlen_k in of(kind)]
    assert sum(n > 0 for n in apart) >= 195 and sum(n >= 16 for n in apart) >= 140


def test_long_lengths_differ_where_they_may_and_fill_half_of_the_range():
    pairs = of("long")
    assert all(n >= CPU.seqlen // 2 for pair in pairs for n in pair) and len(set(pairs)) > 150
    alone = Lengths(ALL, Draws.of(cross=False), CPU.seqlen, 1)
    pairs = [alone.of({"lengths": "long", "near_q": near, "near_k": "any"}, Random(0)) for near in NEAR]
    assert all(seqlen_q == seqlen_k for seqlen_q, seqlen_k in pairs)


@pytest.mark.parametrize("kind", ["long", "more keys", "more queries"])
def test_one_length_fills_its_tiles_where_the_other_does_not(kind):
    pairs = of(kind, "multiple", "beside")
    assert sum(q % 16 == 0 and k % 16 != 0 for q, k in pairs) > 180


@pytest.mark.parametrize("law", [Draws.of(), Draws.of(seqlen_q=(1, 1), cross=True)], ids=["any", "one query"])
def test_lengths_equal_both_numbers_of_heads_at_once(law):
    """A kernel that guesses the order of dimensions by shape may look at q or at k."""
    assert Lengths(ALL, law, CPU.seqlen, 1).classes["as many"] == AS_MANY

    def drawn(of, *lengths):
        lengths_of = Lengths(ALL, law, CPU.seqlen, 1)
        return {lengths_of.as_many(lengths, of, (6, 3), 24, Random(n)) for n in range(9)}

    assert drawn("heads", 1, 40) == {(6 if law.seqlen_q[1] is None else 1, 3)}
    assert drawn("heads", 7, 7) == {(6, 6), (3, 3)}
    assert (drawn("one", 9, 40), drawn("headdim", 9, 40), drawn("headdim", 9, 9)) == ({(9, 1)}, {(9, 24)}, {(24, 24)})


def test_laws_that_name_the_number_of_keys_keep_it():
    assert Lengths(ALL, Draws.of(seqlen_k=(0, 0), cross=True), CPU.seqlen, 1).classes["as many"] == (None,)


def test_heads_and_batches_stay_as_far_as_they_fit():
    """Pairs of a rare number of heads with a ragged length would otherwise be drawn in vain."""
    long = Case(batch=5, nheads=14, nheads_k=2, seqlen_q=129, seqlen_k=129)
    kept = within(long, CPU, ANYTHING, shortens=True, stays=True)
    assert (kept.batch, kept.nheads, kept.nheads_k, kept.seqlen_k) == (1, 14, 2, 129)
    kept = within(long.but(nheads=1, nheads_k=1, batch=67), CPU, ANYTHING, shortens=True, stays=True)
    assert (kept.batch, kept.nheads) == (15, 1)
    for limits, shortens in product((CPU, Limits.on("cpu", 0.2), Limits.on("cpu", small=True)), (True, False)):
        for case in (long, long.but(batch=67), long.but(seqlen_q=1, seqlen_k=1)):
            case = within(case, limits, ANYTHING, shortens, stays=True)
            assert case.batch * case.nheads <= limits.heads
            assert case.batch == case.nheads_k == 1 or case.products // case.headdim <= limits.elements


def test_mixed_layouts_have_q_k_and_v_of_one_shape():
    """Only then may the strides of one be taken for those of another without an error."""
    cases = Drawing(attention_cases(ALL, "cpu", Draws.of(layout=LAYOUTS[1:], toward=telling)), 0, 100).cases
    mixed = [case for case in cases if case.layout == "mixed"]
    assert mixed and all((c.seqlen_q, c.nheads, c.batch) == (c.seqlen_k, c.nheads_k, 2) for c in mixed)


def test_even_differences_become_tiles_or_half_tiles():
    cases = [Case(seqlen_q=q, seqlen_k=k) for q in range(1, 60) for k in range(q, 131)]
    apart = [(k.seqlen_k - k.seqlen_q, c.seqlen_k - c.seqlen_q) for c in cases for k in [toward_tiles(c)]]
    assert {new for new, old in apart if old % 4 == 2} >= {16, 32, 64}
    assert {new for new, old in apart if old % 4 == 0 and old} >= {8, 16, 32, 64}
    assert all(new == old for new, old in apart if old % 2)


def test_every_class_is_a_factor():
    assert LENGTHS.classes["near_q"] == LENGTHS.classes["near_k"] == NEAR
    assert set(LENGTHS.classes["lengths"]) == {"equal", "long", "few queries", "apart", "more keys", "more queries"}
