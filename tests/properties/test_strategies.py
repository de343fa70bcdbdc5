"""Strategies: cases are inside the promise, as the law wants them, and shrink to what a person would have chosen."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from functools import cache
from random import Random

import pytest
import torch
from hypothesis import HealthCheck, Phase, find, given, seed, settings
from hypothesis import strategies as st

from impls import Implementation, Supports
from properties.cases.case import DTYPES, LAYOUTS, REGIMES, Case, parse_case
from properties.cases.features import SCALES
from properties.cases.strategies import Draws, Limits, attention_cases, edges
from properties.cases.support import may_have_empty_rows, unsupported

QUIET = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))


pytestmark = pytest.mark.usefixtures("one_thread")


def multiples_of_32(case):
    """An `accepts` as many kernels need it."""
    return "seqlen must divide by 32" if case.seqlen_q % 32 or case.seqlen_k % 32 else None


def implementation(name: str, **changed) -> Implementation:
    """An implementation that is never called. Keywords that are fields of Supports go there, the others to Implementation."""
    of_supports = {f.name for f in fields(Supports)}
    supports = Supports(**{key: changed.pop(key) for key in list(changed) if key in of_supports})
    return Implementation(name=name, forward=lambda q, k, v: q, supports=supports, **changed)


EVERYTHING = dict(
    dtypes=set(DTYPES.values()), headdims=range(1, 257), causal="optional", bias={"vector", "matrix"},
    cross=True, gqa=True, softmax_scale=True, strides=True,
)  # fmt: skip
LEAST = implementation("least")
ALL = implementation("everything", **EVERYTHING)
ALWAYS_CAUSAL = implementation("always_causal", causal="always", cross=True)
MULTIPLES = implementation("multiples_of_32", accepts=multiples_of_32, **EVERYTHING)
SQUARE = implementation("square_multiples_of_32", accepts=multiples_of_32)
NO_EMPTY_ROWS = implementation("no_empty_rows", empty_rows="undefined", **EVERYTHING)
TOP_LEFT = implementation("top_left", empty_rows="undefined", causal_alignment="top_left", **EVERYTHING)
ONE_HEADDIM = implementation("one_headdim", headdims={96})
LARGE_HEADDIM = implementation("large_headdim", headdims={512, 1024})
GQA = implementation("gqa", gqa=True, dtypes={torch.bfloat16})
VECTOR = implementation("vector_bias", bias={"vector"}, causal="optional")
IMPLS = [LEAST, ALL, ALWAYS_CAUSAL, MULTIPLES, SQUARE, NO_EMPTY_ROWS, TOP_LEFT, ONE_HEADDIM, LARGE_HEADDIM, GQA, VECTOR]
each_impl = pytest.mark.parametrize("declared", IMPLS, ids=lambda impl: impl.name)

ANY = Draws()


def drawn(impl: Implementation, draws: Draws = ANY, n: int = 100, device: str = "cpu") -> tuple[list[Case], int]:
    """n cases for a law with these `draws`, and how many further draws were rejected."""
    return _drawn(IMPLS.index(impl), draws, n, device)


@cache
def _drawn(number: int, draws: Draws, n: int, device: str) -> tuple[list[Case], int]:
    cases, begun = [], [0]
    strategy = attention_cases(IMPLS[number], device, draws)

    @seed(0)
    @settings(QUIET, max_examples=n, phases=(Phase.generate,))
    @given(st.data())
    def keep(data):
        begun[0] += 1
        cases.append(data.draw(strategy))

    keep()
    return cases, begun[0] - len(cases)


def smallest(impl: Implementation, condition, start: int = 0, **draws) -> Case:
    """The case that would be shown by a law that fails under this condition."""
    configured = settings(QUIET, max_examples=2000)
    return find(attention_cases(impl, "cpu", Draws.of(**draws)), condition, settings=configured, random=Random(start))


# --- every draw lies inside the promise -------------------------------------------------------------------------------


@each_impl
def test_every_drawn_case_is_supported(declared):
    cases, _ = drawn(declared)
    assert [reason for case in cases if (reason := unsupported(declared, case))] == []


@each_impl
def test_few_draws_are_rejected(declared):
    """Hypothesis stops at 10 rejected draws for each accepted one, and the accepted ones are biased by then."""
    cases, rejected = drawn(declared)
    assert len(cases) == 100 and rejected <= 10


@each_impl
def test_draws_vary(declared):
    cases, _ = drawn(declared)
    assert len(set(cases)) >= 80 and len({case.seqlen_q for case in cases}) >= 4


@QUIET
@given(attention_cases(ALL, "cpu", Draws.of(layout=LAYOUTS)))
def test_drawn_cases_parse_to_the_same_case(case):
    assert parse_case(str(case)) == case


def test_an_implementation_with_default_supports_gets_plain_cases():
    cases, _ = drawn(LEAST)
    assert {(c.causal, c.bias, c.softmax_scale, c.layout) for c in cases} == {(False, None, None, "contiguous")}
    assert all(c.seqlen_q == c.seqlen_k and c.nheads == c.nheads_k for c in cases)


def test_declared_dtypes_and_headdims_are_all_drawn():
    cases, _ = drawn(LEAST)
    assert {(c.dtype, c.headdim) for c in cases} == {(t, d) for t in (torch.float16, torch.bfloat16) for d in (64, 128)}


def test_headdims_beyond_the_device_are_drawn_where_no_other_is_supported():
    cases, _ = drawn(LARGE_HEADDIM)
    assert sum(case.headdim == 512 for case in cases) >= 50 and {case.headdim for case in cases} <= {512, 1024}


def test_multiples_of_32_are_drawn_where_nothing_else_is_accepted():
    cases, _ = drawn(MULTIPLES)
    assert {32, 64, 96, 128} <= {case.seqlen_q for case in cases}
    assert any(case.seqlen_q != case.seqlen_k for case in cases)


def test_accepts_does_not_change_the_other_fields():
    """Rounding a length up must not remove the bias, the mask or the causal cases."""
    cases, _ = drawn(MULTIPLES)
    free, _ = drawn(ALL)
    for what in ("causal", "bias", "bias_mask", "softmax_scale", "regime"):
        assert Counter(getattr(case, what) for case in cases) == Counter(getattr(case, what) for case in free), what


def test_undefined_empty_rows_are_never_drawn():
    cases, _ = drawn(NO_EMPTY_ROWS)
    assert not any(may_have_empty_rows(NO_EMPTY_ROWS, case) for case in cases)
    assert Counter(case.bias for case in cases) == Counter(
        case.bias for case in drawn(ALL)[0]
    )  # masks change, biases do not
    assert any(case.causal and case.seqlen_q < case.seqlen_k for case in cases)
    assert any(case.seqlen_q > case.seqlen_k for case in cases)


def test_top_left_alignment_leaves_no_row_empty():
    cases, _ = drawn(TOP_LEFT)
    assert any(case.causal and case.seqlen_q > case.seqlen_k for case in cases)


def test_always_causal_is_always_causal():
    assert all(case.causal for case in drawn(ALWAYS_CAUSAL)[0])


def test_gqa_shares_each_key_head_among_query_heads():
    cases, _ = drawn(GQA)
    assert {case.nheads // case.nheads_k for case in cases} == {1, 2, 3, 4, 8}


def test_vector_bias_has_no_dead_row():
    """A vector has one row for all queries, so a single dead row needs a matrix."""
    cases, _ = drawn(VECTOR)
    assert {case.bias for case in cases} == {None, "vector"}
    assert "dead_row" not in {case.bias_mask for case in cases}


def test_most_cases_have_three_slices_or_more():
    """With one slice no error can reach the memory of a neighbour."""
    cases, _ = drawn(ALL)
    assert sum(case.batch * case.nheads >= 3 for case in cases) > 50


def test_lengths_just_past_a_tile_are_drawn():
    cases, _ = drawn(ALL, n=200)
    lengths = {n for case in cases for n in (case.seqlen_q, case.seqlen_k)}
    assert {65, 66} & lengths and {33, 34} & lengths and {129, 130} & lengths


def test_both_ways_of_unequal_lengths_are_drawn():
    cases, _ = drawn(ALL, n=200)
    assert sum(c.seqlen_q < c.seqlen_k for c in cases) >= 10 and sum(c.seqlen_q > c.seqlen_k for c in cases) >= 10


def test_every_regime_is_drawn():
    assert {case.regime for case in drawn(ALL)[0]} == set(REGIMES)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_score_matrices_fit_the_device(device):
    cases, _ = drawn(ALL, device=device)
    sizes = Limits.on(device)
    assert max(c.batch * c.nheads * c.seqlen_q * c.seqlen_k for c in cases) <= sizes.elements
    assert max(max(c.seqlen_q, c.seqlen_k) for c in cases) <= sizes.seqlen


def test_a_gpu_gets_longer_sequences():
    longest = {device: max(case.seqlen_q for case in drawn(ALL, device=device)[0]) for device in ("cpu", "cuda")}
    assert longest["cpu"] <= 130 and longest["cuda"] > 500


def test_stretched_sequences_are_longer():
    cases, _ = drawn(ALL, Draws.of(stretch=8))
    assert max(case.seqlen_q for case in cases) > 260


# --- edges ------------------------------------------------------------------------------------------------------------


def test_edges_are_around_every_power_of_two():
    assert edges(20) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 16, 17, 18]


def test_edges_include_a_tile_and_a_tail_of_one_and_two():
    """A mask that is one key short fails at 65, one that is one key long at 66 (at 65 the last query sees every key)."""
    assert {63, 64, 65, 66, 127, 128, 129, 130, 257} <= set(edges(300))


def test_edges_stay_within_their_bounds():
    assert edges(65, 33) == [33, 34, 63, 64, 65] and edges(14, 11) == []


# --- what a law wants -------------------------------------------------------------------------------------------------

WANTS = {
    "causal": Draws.of(causal=True),
    "not_causal": Draws.of(causal=False),
    "cross": Draws.of(cross=True),
    "square": Draws.of(cross=False),
    "gqa": Draws.of(gqa=True),
    "no_gqa": Draws.of(gqa=False),
    "bias": Draws.of(bias=True),
    "no_bias": Draws.of(bias=False),
    "matrix": Draws.of(bias="matrix"),
    "masks": Draws.of(bias=True, bias_mask=("right", "dead_row")),
    "regimes": Draws.of(regime=("exact", "flat")),
    "scales": Draws.of(softmax_scale=(0.0, 2.0)),
    "dtypes": Draws.of(dtype=torch.float16),
    "layouts": Draws.of(layout=("packed", "gapped")),
    "lengths": Draws.of(seqlen_q=(2, 9), seqlen_k=(0, 3), cross=True),
    "where": Draws.of(where=lambda case: case.seqlen_q % 2 == 0),
}
FACTS = {
    "causal": lambda c: c.causal,
    "not_causal": lambda c: not c.causal,
    "cross": lambda c: True,
    "square": lambda c: c.seqlen_q == c.seqlen_k,
    "gqa": lambda c: c.nheads_k < c.nheads,
    "no_gqa": lambda c: c.nheads_k == c.nheads,
    "bias": lambda c: c.bias is not None,
    "no_bias": lambda c: c.bias is None,
    "matrix": lambda c: c.bias == "matrix",
    "masks": lambda c: c.bias_mask in ("right", "dead_row"),
    "regimes": lambda c: c.regime in ("exact", "flat"),
    "scales": lambda c: c.softmax_scale in (0.0, 2.0),
    "dtypes": lambda c: c.dtype == torch.float16,
    "layouts": lambda c: c.layout in ("packed", "gapped"),
    "lengths": lambda c: 2 <= c.seqlen_q <= 9 and 0 <= c.seqlen_k <= 3,
    "where": lambda c: c.seqlen_q % 2 == 0,
}
each_want = pytest.mark.parametrize("want", WANTS)


@each_want
def test_drawn_cases_are_what_the_law_wants(want):
    cases, _ = drawn(ALL, WANTS[want], n=60)
    assert all(FACTS[want](case) for case in cases)


@each_want
def test_drawn_cases_are_not_excluded(want):
    """`excludes` checks a case given by --case. It must accept every case that the law could draw."""
    cases, _ = drawn(ALL, WANTS[want], n=60)
    assert [reason for case in cases if (reason := WANTS[want].excludes(case))] == []


@each_want
def test_unwanted_cases_are_excluded(want):
    """Checked with cases that are drawn for a law without wishes."""
    for case in _of_any_kind(want):
        if not FACTS[want](case):
            assert WANTS[want].excludes(case) is not None, case


@each_want
def test_wanted_cases_are_not_excluded(want):
    for case in _of_any_kind(want):
        if FACTS[want](case):
            assert WANTS[want].excludes(case) is None, case


def _of_any_kind(want: str) -> list[Case]:
    return drawn(ALL, Draws.of(layout=LAYOUTS if want == "layouts" else ("contiguous",)), n=200)[0]


def test_reasons_for_exclusion_name_the_feature():
    reason = Draws.of(regime=("exact", "flat")).excludes(Case())
    assert reason == "the law wants regime exact or regime flat"


def test_named_scales_are_drawn():
    cases, _ = drawn(ALL, Draws.of(softmax_scale=(None, 2.0)))
    assert {case.softmax_scale for case in cases} == {None, 2.0}


def test_a_feature_that_is_not_wanted_keeps_its_neutral_value():
    assert {case.softmax_scale for case in drawn(ALL, Draws.of(softmax_scale=False))[0]} == {None}


def test_all_usual_scales_are_drawn_unless_a_law_names_some():
    assert {case.softmax_scale for case in drawn(ALL)[0]} == set(SCALES)


def test_scales_are_drawn_only_where_they_are_supported():
    assert {case.softmax_scale for case in drawn(LEAST, Draws.of(softmax_scale=(None, 2.0)))[0]} == {None}


def test_layouts_are_contiguous_where_strides_are_not_supported():
    assert {case.layout for case in drawn(LEAST, Draws.of(layout=LAYOUTS))[0]} == {"contiguous"}


# --- shrinking --------------------------------------------------------------------------------------------------------


def test_a_second_tile_shrinks_to_one_row_of_it():
    case = smallest(ALL, lambda c: c.seqlen_q > 64 and c.seqlen_q % 64)
    assert case == Case(seqlen_q=65, seqlen_k=65, headdim=1)


def test_a_partial_tile_of_keys_alone_shrinks_to_one_query():
    case = smallest(ALL, lambda c: c.seqlen_k > 64 and c.seqlen_k % 64, cross=True)
    assert case == Case(seqlen_q=1, seqlen_k=65, headdim=1)


def test_a_law_that_always_fails_shrinks_to_the_smallest_case():
    assert smallest(ALL, lambda c: True) == Case(headdim=1)


def test_a_head_dim_shrinks_to_the_smallest_that_fails():
    """It does not stop at a head dim that is rarely drawn (255), whichever the search tries first."""
    found = {smallest(ALL, lambda c: c.headdim > 64, start=n).headdim for n in range(4)}
    assert found == {65}


def test_a_failure_in_the_third_head_shrinks_to_three_heads():
    assert smallest(ALL, lambda c: c.nheads_k >= 3) == Case(nheads=3, nheads_k=3, headdim=1)


def test_a_bias_shrinks_to_a_plain_one():
    case = smallest(ALL, lambda c: c.bias == "matrix" and c.seqlen_q > 16)
    assert case == Case(seqlen_q=17, seqlen_k=17, headdim=1, bias="matrix")


def test_masked_and_causal_shrink_together():
    case = smallest(
        ALL, lambda c: c.causal and c.bias_mask == "left" and c.dtype == torch.bfloat16 and c.seqlen_k > 1, cross=False
    )
    # Heads are shrunk by properties/judging/shrink.py, because the choices for the bias depend on their number.
    assert case.but(nheads=1, nheads_k=1) == Case(
        seqlen_q=2, seqlen_k=2, headdim=1, dtype=torch.bfloat16, causal=True, bias="vector", bias_mask="left"
    )


def test_multiples_shrink_to_the_first_that_fails():
    assert smallest(SQUARE, lambda c: c.seqlen_q > 32) == Case(seqlen_q=64, seqlen_k=64, dtype=torch.float16)
