"""Drawn cases are supported, and reach the edges of tiles."""

import itertools
from collections import Counter

import pytest
import torch
from hypothesis import given

from flash_attest.properties.cases.bias_masks import may_have_empty_rows
from flash_attest.properties.cases.case import BIAS_MASKS, DTYPES, LAYOUTS, REGIMES, parse_case
from flash_attest.properties.cases.drawing import Drawing
from flash_attest.properties.cases.draws import Draws
from flash_attest.properties.cases.features import mask_of
from flash_attest.properties.cases.fitting import multiple
from flash_attest.properties.cases.lengths import APART
from flash_attest.properties.cases.limits import Limits
from flash_attest.properties.cases.sizes import GROUPS, edges
from flash_attest.properties.cases.strategies import attention_cases
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.law import laws
from tests.properties.cases.drawing import (
    ALL,
    ALWAYS_CAUSAL,
    EVERYTHING,
    GQA,
    IMPLS,
    LARGE_HEADDIM,
    LEAST,
    MULTIPLES,
    NO_EMPTY_ROWS,
    PAGED,
    QUIET,
    TODAY,
    TOP_LEFT,
    VECTOR,
    drawn,
    implementation,
    smallest,
)

each_impl = pytest.mark.parametrize("declared", IMPLS, ids=lambda impl: impl.name)


# --- every draw is supported ----------------------------------------------------------------------


@each_impl
def test_every_drawn_case_is_supported(declared):
    cases, _ = drawn(declared)
    assert [reason for case in cases if (reason := unsupported(declared, case))] == []


@each_impl
def test_few_draws_are_rejected(declared):
    """Hypothesis stops at 10 rejected draws for each accepted one, and draws are biased before
    that.
    """
    cases, rejected = drawn(declared)
    assert len(cases) == 100 and rejected <= 15  # draws of Hypothesis that mix two earlier ones


@each_impl
def test_draws_vary(declared):
    cases, _ = drawn(declared)
    assert len(set(cases)) >= 80 and len({case.seqlen_q for case in cases}) >= 4


@QUIET
@given(attention_cases(ALL, "cpu", Draws.of(layout=LAYOUTS)))
def test_drawn_cases_parse_to_the_same_case(case):
    assert parse_case(str(case)) == case


ON = {
    "window": lambda case: case.window is not None,
    "softcap": lambda case: case.softcap is not None,
    "sinks": lambda case: case.sinks is not None,
    "headdim_v": lambda case: case.headdim_v != case.headdim,
    "dlse": lambda case: case.dlse,
    "hidden": lambda case: case.hidden is not None,
    "shared_kv": lambda case: case.shared_kv,
}


def test_every_second_case_is_plain_and_every_pair_of_features_meets():
    cases, _ = drawn(TODAY, n=200)
    number = Counter(sum(on(case) for on in ON.values()) for case in cases)
    assert number[0] > 90 and number[6] + number[7] > 25 and number[2] + number[3] + number[4] > 50
    assert not number[1] + number[5] and number[7] > 5  # a v that is wider than k is not a part of it
    for one, other in itertools.combinations(ON.values(), 2):
        assert (True, True) in pairs(cases, one, other)
    for name in ("window", "softcap", "sinks", "hidden"):
        values = {getattr(case, name) for case in cases if ON[name](case)}
        assert len(values) >= (10 if name == "window" else 4), name


def test_windows_hide_keys_on_each_side_and_reach_beyond_them():
    cases, _ = drawn(TODAY, Draws.of(window=("both",)), n=60)
    hiding = [mask_of(case, "bottom_right").visible(case.seqlen_q, case.seqlen_k) for case in cases]
    assert sum(not bool(visible.all()) for visible in hiding) > 40
    for side in (0, 1):
        sizes = [case.window[side] for case in cases]
        assert {0, 1} <= set(sizes) and any(n >= case.seqlen_k for n, case in zip(sizes, cases, strict=True))


@pytest.mark.parametrize("name", ON)
def test_a_failure_that_needs_one_feature_shrinks_to_that_feature_alone(name):
    case = smallest(TODAY, ON[name])
    assert [other for other, on in ON.items() if on(case)] == [name]


def test_a_window_shrinks_to_the_smallest_that_fails():
    case = smallest(TODAY, lambda case: case.window is not None and (case.window[1] or 0) >= 3)
    assert case.window == (None, 3)


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


def test_kernels_for_decoding_get_cases():
    """Such kernels take one query, and keys in whole pages, so each length is fitted separately."""

    def accepts(case):
        return None if case.seqlen_q == 1 and case.seqlen_k % 16 == 0 else "one query, pages of 16 keys"

    declared = implementation("decoding", cross=True, gqa=True, accepts=accepts)
    cases = Drawing(attention_cases(declared, "cpu"), 0, 60).cases
    assert len(cases) == 60 and {case.seqlen_q for case in cases} == {1}
    assert len({case.seqlen_k for case in cases}) >= 6 and any(case.nheads > case.nheads_k for case in cases)


def test_accepts_does_not_change_the_other_fields():
    """Rounding a length up must not remove the bias, the mask or the causal cases."""
    cases, _ = drawn(MULTIPLES)
    free, _ = drawn(ALL)
    for what in ("causal", "bias", "bias_mask", "softmax_scale", "regime"):
        assert Counter(getattr(case, what) for case in cases) == Counter(getattr(case, what) for case in free), what


def test_undefined_empty_rows_are_never_drawn():
    cases, _ = drawn(NO_EMPTY_ROWS)
    assert not any(may_have_empty_rows(case, "bottom_right") for case in cases)
    free, _ = drawn(ALL)
    assert Counter(case.bias for case in cases) == Counter(case.bias for case in free)
    assert any(case.causal and case.seqlen_q < case.seqlen_k for case in cases)
    assert any(case.seqlen_q > case.seqlen_k for case in cases)


@pytest.mark.parametrize(
    "declared",
    [NO_EMPTY_ROWS, pytest.param(TOP_LEFT, marks=pytest.mark.thorough)],
    ids=lambda impl: impl.name,
)
def test_every_mask_is_drawn_where_empty_rows_are_undefined(declared):
    """A mask that could leave a row empty then keeps a key in each row. Other masks are
    unchanged.
    """
    cases, _ = drawn(declared, Draws.of(bias=True), n=200)
    assert {case.bias_mask for case in cases} == set(BIAS_MASKS)
    assert any(case.bias_mask == "left" and not case.causal and not case.bias_keeps_key for case in cases)
    for mask in ("left", "dead_row", "window"):
        assert any(case.bias_mask == mask and case.bias_keeps_key for case in cases), mask


def test_masks_keep_no_key_where_empty_rows_are_promised():
    cases, _ = drawn(ALL, Draws.of(bias=True), n=200)
    assert not any(case.bias_keeps_key for case in cases)


@pytest.mark.parametrize(("tile", "longest"), [(None, 258), ((64, 256), 514), ((16, 16), 130), ((1, 10**6), 1040)])
def test_lengths_reach_two_tiles_of_keys_and_more_where_a_law_wants_that(tile, longest):
    """Without it, a bias could not hide a whole tile of 128 on a CPU, with visible keys after
    it.
    """
    limits = Limits.on("cpu")
    assert limits.longest(Draws.of(two_tiles=True), tile) == longest
    assert limits.longest(Draws.of(), tile) == limits.seqlen


def test_top_left_alignment_leaves_no_row_empty():
    cases, _ = drawn(TOP_LEFT)
    assert any(case.causal and case.seqlen_q > case.seqlen_k for case in cases)


def test_always_causal_is_always_causal():
    assert all(case.causal for case in drawn(ALWAYS_CAUSAL)[0])


def test_gqa_shares_each_key_head_among_query_heads():
    cases, _ = drawn(GQA)
    groups = {case.nheads // case.nheads_k for case in cases if case.batch * case.nheads_k > 1}
    assert groups == {1, *GROUPS}
    # A case with one key head has at most one group.
    assert max(case.nheads for case in cases if case.nheads_k == 1) <= max(GROUPS)


def test_more_than_eight_heads_without_gqa_and_many_batches_of_several_heads_are_drawn():
    cases = Drawing(attention_cases(ALL, "cpu"), 0, 200).cases
    plain = {(case.batch, case.nheads) for case in cases if case.nheads == case.nheads_k}
    assert {(1, 9), (1, 12), (2, 16), (67, 3)} <= plain


def few(case):
    return case.seqlen_q <= 8


def pairs(cases, *features):
    """Return the pairs of values of two features that the cases have."""
    return {tuple(feature(case) for feature in features) for case in cases}


def test_pairs_that_fast_paths_need_are_met_in_100_cases():
    """They shipped wrong: few queries with a usual head dim, several batches, a layout, or large
    scores.
    """
    cases = Drawing(attention_cases(ALL, "cpu", Draws.of(layout=LAYOUTS)), 0, 100).cases
    others = {
        "headdim": (lambda case: case.headdim in (64, 96, 128), (False, True)),
        "batches": (lambda case: case.batch > 1, (False, True)),
        "gqa": (lambda case: case.nheads != case.nheads_k, (False, True)),
        "causal": (lambda case: case.causal, (False, True)),
        "layout": (lambda case: case.layout, LAYOUTS),
        "regime": (lambda case: case.regime, REGIMES),
        "dtype": (lambda case: case.dtype, DTYPES.values()),
    }
    for name, (feature, values) in others.items():
        assert pairs(cases, few, feature) >= {(True, value) for value in values}, name
    layout, batches = others["layout"][0], others["batches"][0]
    assert pairs(cases, layout, batches) == {(value, several) for value in LAYOUTS for several in (False, True)}
    assert len(pairs(cases, layout, others["regime"][0])) >= 80  # of 110 in 100 cases


def drawn_for(law):
    """Return a dense implementation, or a paged one for laws about forms."""
    return PAGED if {"pages", "append", "splits", "rows of nobody", "lengths", "cache"} & {*law.needs} else TODAY


def test_the_laws_of_a_run_meet_the_pairs_of_sizes_with_two_cases_each():
    """A kernel in the emulator gets few cases of each law."""
    cases = [
        case
        for number, law in enumerate(laws().values())
        for case in Drawing(attention_cases(drawn_for(law), "cpu", law.draws), number, 2).cases
    ]
    sizes = [
        few, lambda case: case.seqlen_q < case.seqlen_k, lambda case: case.batch > 1, lambda case: case.nheads_k > 1,
        lambda case: case.nheads_k > 8, lambda case: case.headdim in (64, 96, 128), lambda case: case.seqlen_k % 16 == 0,
        lambda case: case.causal, lambda case: case.nheads != case.nheads_k,
    ]  # fmt: skip
    for one, other in itertools.combinations(sizes, 2):
        assert (True, True) in pairs(cases, one, other)
    regimes = pairs(cases, lambda case: case.regime, few)
    assert {regime for regime, short in regimes if short} == set(REGIMES)


def test_two_and_three_tiles_are_drawn_where_only_multiples_are_taken():
    """A kernel that takes multiples of 128 alone may be wrong from the second tile on."""

    def accepts(case):
        return "lengths must divide by 128" if case.seqlen_q % 128 or case.seqlen_k % 128 else None

    declared = implementation("multiples_of_128", accepts=accepts, **EVERYTHING)
    cases = Drawing(attention_cases(declared, "cpu"), 0, 60).cases
    usual = [case for case in cases if case.seqlen_k < 500]  # longer ones are those of a path
    for name in ("seqlen_q", "seqlen_k"):
        lengths = Counter(getattr(case, name) for case in usual)
        assert {128, 256, 384} == lengths.keys() and len(usual) - lengths[128] >= 12, name
    assert multiple(declared) == 128 and multiple(ALL) == 1 and multiple(MULTIPLES) == 32
    long = implementation("long", accepts=lambda case: "too short" if case.seqlen_q < 16 else None)
    one = implementation("one", accepts=lambda case: None if case.seqlen_q == case.seqlen_k == 128 else "128 only")
    assert multiple(long) == multiple(one) == 1
    small = Drawing(attention_cases(declared, "cpu", small=True), 0, 20).cases
    assert {128, 256} <= {case.seqlen_k for case in small}


def test_vector_bias_has_no_dead_row():
    """A vector has one row for all queries, so a single dead row needs a matrix."""
    cases, _ = drawn(VECTOR)
    assert {case.bias for case in cases} == {None, "vector"}
    assert "dead_row" not in {case.bias_mask for case in cases}


def test_most_cases_have_three_slices_or_more():
    """With one slice, no error can reach the memory of another slice."""
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
    assert max(max(c.seqlen_q, c.seqlen_k) for c in cases if min(c.seqlen_q, c.seqlen_k) > 2) <= sizes.seqlen


def test_a_gpu_gets_longer_sequences():
    longest = {device: max(case.seqlen_q for case in drawn(ALL, device=device)[0]) for device in ("cpu", "cuda")}
    assert longest["cpu"] <= 130 and longest["cuda"] > 500


def test_sequences_reach_as_far_as_a_law_wants_and_no_farther():
    """On a CPU the lengths are eight times as long as usual, or four times for kernels in the
    emulator.

    On a GPU the usual lengths are long enough.
    """
    want = Draws.of(reach=1040)
    assert [Limits.on("cpu", share).longest(want, None) for share in (1.0, 0.2)] == [1040, 520]
    assert Limits.on("cuda").longest(want, None) == Limits.on("cuda").longest(Draws(), None) == 1100


def test_stretched_sequences_are_longer():
    cases, _ = drawn(ALL, Draws.of(stretch=8))
    assert max(case.seqlen_q for case in cases) > 260


# --- edges ----------------------------------------------------------------------------------------


def test_edges_are_around_every_power_of_two():
    assert edges(20) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 16, 17, 18]


def test_edges_include_a_tile_and_a_tail_of_one_and_two():
    """A mask that is one key short fails at 65, and a mask that is one key long at 66.

    At 65 the last query sees every key.
    """
    assert {63, 64, 65, 66, 127, 128, 129, 130, 257} <= set(edges(300))


def test_edges_stay_within_their_bounds():
    assert edges(65, 33) == [33, 34, 63, 64, 65] and edges(14, 11) == []


# --- small cases ----------------------------------------------------------------------------------


def test_small_cases_reach_a_second_tile_of_64():
    """The profile smoke draws small cases on a CPU. On a GPU no cases are small."""
    cases, _ = drawn(ALL, small=True)
    limits = Limits.on("cpu", small=True)
    assert 64 < max(case.seqlen_q for case in cases) <= limits.seqlen < Limits.on("cpu").seqlen
    many = [case for case in cases if case.batch * case.nheads_k > 1]  # one key head is never too much
    assert max(case.batch * case.nheads for case in many) <= limits.heads
    assert max(case.batch * case.nheads * case.seqlen_q * case.seqlen_k for case in many) <= limits.elements
    assert {case.batch for case in cases} > {1} and any(case.nheads_k > 1 for case in cases)
    assert Limits.on("cuda", small=True) == Limits.on("cuda")


@pytest.mark.parametrize("law", laws().values(), ids=laws())
def test_every_law_finds_small_cases(law):
    """Two cases are enough for the profile smoke to include every law that applies."""
    assert len(Drawing(attention_cases(drawn_for(law), "cpu", law.draws, small=True), 0, 2).cases) == 2


def test_keys_are_a_whole_tile_apart():
    """Where the longest sequence is shorter than queries and the distance, queries are fewer."""
    cases = Drawing(attention_cases(ALL, "cpu"), 0, 60).cases
    assert {case.seqlen_k - case.seqlen_q for case in cases} >= set(APART)
