"""Cases: printed and read back, drawn inside every promise, shrunk to what a person would have chosen."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import HealthCheck, Phase, find, given, seed, settings
from hypothesis import strategies as st

from impls import Implementation, Supports
from properties.case import BIAS_MASKS, BIASES, DTYPES, LAYOUTS, REGIMES, Case, CaseError, parse_case
from properties.regimes import build
from properties.strategies import SCALES, Draws, Sizes, attention_cases, edges
from properties.support import may_have_empty_rows, unsupported

ROOT = Path(__file__).parents[1]
QUIET = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))


pytestmark = pytest.mark.usefixtures("one_thread")


def multiples_of_32(case):
    """An `accepts` that many kernels need."""
    return "seqlen must divide by 32" if case.seqlen_q % 32 or case.seqlen_k % 32 else None


def implementation(name: str, **changed) -> Implementation:
    """An implementation that is never called: keywords of Supports go there, others to Implementation."""
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
    """n cases as a law that wants `draws` gets them, and how many were begun and given up."""
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
    """The case that a law which fails under this condition would show."""
    configured = settings(QUIET, max_examples=2000)
    return find(attention_cases(impl, "cpu", Draws(**draws)), condition, settings=configured, random=Random(start))


# --- Case: printing, reading, changing -----------------------------------------------------------------------------------


@QUIET
@given(attention_cases(ALL, "cpu", Draws(layouts=LAYOUTS)))
def test_drawn_cases_are_read_back_as_they_print(case):
    assert parse_case(str(case)) == case


@QUIET
@given(st.builds(
    Case, seqlen_q=st.integers(0, 200), seqlen_k=st.integers(0, 200), headdim=st.integers(1, 256),
    dtype=st.sampled_from(list(DTYPES.values())), bias_dtype=st.sampled_from(list(DTYPES.values())),
    causal=st.booleans(), bias=st.sampled_from(BIASES), bias_mask=st.sampled_from(BIAS_MASKS),
    softmax_scale=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    regime=st.sampled_from(REGIMES), layout=st.sampled_from(LAYOUTS), seed=st.integers(0, 2**40),
))  # fmt: skip
def test_every_field_is_read_back_as_it_prints(case):
    assert parse_case(str(case)) == case


def test_one_key_head_for_many_is_read_back():
    """nheads_k=1 is its default, but left out it would follow nheads: multi-query attention would replay without."""
    case = Case(seqlen_q=3, seqlen_k=3, nheads=4, nheads_k=1)
    assert parse_case(str(case)) == case


def test_case_prints_its_sizes_and_what_is_not_default():
    case = Case(seqlen_q=65, seqlen_k=65, headdim=40, dtype=torch.float16, causal=True, softmax_scale=0.5)
    assert str(case) == "seqlen_q=65 seqlen_k=65 headdim=40 dtype=float16 causal=True softmax_scale=0.5"


def test_case_is_one_line():
    assert repr(Case()) == "seqlen_q=1 seqlen_k=1 headdim=64 dtype=float32"


@pytest.mark.parametrize(
    ("text", "follower", "value"),
    [("seqlen_q=65", "seqlen_k", 65), ("seqlen_k=7", "seqlen_q", 7), ("nheads=3", "nheads_k", 3)],
)
def test_what_is_left_out_follows_its_partner(text, follower, value):
    assert getattr(parse_case(text), follower) == value


@pytest.mark.parametrize("text", ["causal=true", "causal=True", "causal=1"])
def test_booleans_are_read_in_any_usual_spelling(text):
    assert parse_case(text).causal is True


def test_dtypes_may_carry_torchs_prefix():
    assert parse_case("dtype=torch.bfloat16").dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seqlen=65", "'seqlen=65' is no field=value; the fields are batch, seqlen_q, seqlen_k"),
        ("causal", "'causal' is no field=value"),
        ("batch=2 batch=3", "batch is given twice"),
        ("headdim=0", "headdim=0: should be at least 1"),
        ("seqlen_q=-1", "seqlen_q=-1: should be at least 0"),
        ("seqlen_q=1.5", "seqlen_q=1.5: should look like seqlen_q=1"),
        ("causal=maybe", "causal=maybe: should look like causal=False"),
        ("dtype=float8", "dtype=float8: should be one of float32, float16, bfloat16"),
        ("bias=diagonal", "bias=diagonal: should be one of None, vector, matrix"),
        ("regime=wild", "regime=wild: should be one of spread, peaked"),
        ("layout=strided", "layout=strided: should be one of contiguous, transposed"),
        ("bias_mask=all", "bias_mask=all: should be one of none, right, left"),
        ("nheads=3 nheads_k=2", "nheads_k=2: should divide nheads=3"),
        ("batch=3 bias_batch=2", "bias_batch=2: should be 1 or batch=3"),
        ("nheads=3 bias_nheads=2", "bias_nheads=2: should be 1 or nheads=3"),
        ("softmax_scale=inf", "softmax_scale=inf: should be finite"),
        ("softmax_scale=big", "softmax_scale=big: should be a number or None"),
    ],
)
def test_a_case_that_cannot_be_names_field_and_value(text, words):
    with pytest.raises(CaseError, match=re.escape(words)) as caught:
        parse_case(text)
    assert str(caught.value).startswith("--case: ")


def test_every_problem_of_a_case_is_named():
    with pytest.raises(CaseError, match=r"batch=0.*headdim=0.*regime=wild"):
        Case(batch=0, headdim=0, regime="wild")


def test_default_scale_is_one_over_the_root_of_headdim():
    assert Case(headdim=64).scale == 0.125 and Case(softmax_scale=0.0).scale == 0.0


@pytest.mark.parametrize(
    ("bias", "shape"), [("vector", (2, 1, 1, 7)), ("matrix", (2, 1, 5, 7))]
)  # fmt: skip
def test_bias_shape_says_what_is_broadcast(bias, shape):
    case = Case(batch=2, seqlen_q=5, seqlen_k=7, nheads=3, nheads_k=3, bias=bias, bias_batch=2)
    assert case.bias_shape == shape


BIASED = Case(batch=2, nheads=6, nheads_k=3, bias="vector", bias_batch=2, bias_nheads=6)


@pytest.mark.parametrize(
    ("case", "changed", "fields_after"),
    [
        (BIASED, dict(batch=3), dict(bias_batch=3, bias_nheads=6)),
        (BIASED, dict(batch=1), dict(bias_batch=1)),
        (BIASED, dict(nheads=9), dict(nheads_k=3, bias_nheads=9)),  # 3 divides 9, so the heads of k may stay
        (BIASED, dict(nheads=4), dict(nheads_k=4, bias_nheads=4)),
        (BIASED, dict(nheads=3, nheads_k=1), dict(nheads_k=1, bias_nheads=3)),
        (BIASED, dict(bias_batch=1, batch=5), dict(bias_batch=1)),
        (Case(batch=2, nheads=3, nheads_k=3, bias="matrix"), dict(batch=4), dict(bias_batch=1, bias_nheads=1)),
    ],
)
def test_sizes_follow_what_they_hang_on(case, changed, fields_after):
    other = case.but(**changed)
    assert {name: getattr(other, name) for name in fields_after} == fields_after


def test_what_is_not_changed_stays():
    case = Case(seqlen_q=5, causal=True, seed=3)
    assert case.but(seqlen_q=6) == replace(case, seqlen_q=6)


# --- strategies: every draw lies inside the promise ------------------------------------------------------------------------


@each_impl
def test_every_drawn_case_is_supported(declared):
    cases, _ = drawn(declared)
    assert [reason for case in cases if (reason := unsupported(declared, case))] == []


@each_impl
def test_few_draws_are_given_up(declared):
    """Hypothesis gives up at 10 failed draws for each good one, and what is left by then is no fair choice."""
    cases, rejected = drawn(declared)
    assert len(cases) == 100 and rejected <= 10


@each_impl
def test_draws_are_not_all_alike(declared):
    cases, _ = drawn(declared)
    assert len(set(cases)) >= 80 and len({case.seqlen_q for case in cases}) >= 4


def test_least_implementation_gets_the_plainest_cases():
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


def test_accepted_cases_keep_what_makes_them_hard():
    """Rounding a length up must not cost the bias, the mask or the causal cases."""
    cases, _ = drawn(MULTIPLES)
    free, _ = drawn(ALL)
    for what in ("causal", "bias", "bias_mask", "softmax_scale", "regime"):
        assert Counter(getattr(case, what) for case in cases) == Counter(getattr(case, what) for case in free), what


def test_undefined_empty_rows_are_never_drawn():
    cases, _ = drawn(NO_EMPTY_ROWS)
    assert not any(may_have_empty_rows(NO_EMPTY_ROWS, case) for case in cases)
    assert Counter(case.bias for case in cases) == Counter(case.bias for case in drawn(ALL)[0])  # masks go, biases stay
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
    """One row of bias serves all queries: a dead row needs a matrix."""
    cases, _ = drawn(VECTOR)
    assert {case.bias for case in cases} == {None, "vector"}
    assert "dead_row" not in {case.bias_mask for case in cases}


def test_most_cases_have_three_slices_or_more():
    """With one slice a neighbour's memory is never touched."""
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
    sizes = Sizes.on(device)
    assert max(c.batch * c.nheads * c.seqlen_q * c.seqlen_k for c in cases) <= sizes.elements
    assert max(max(c.seqlen_q, c.seqlen_k) for c in cases) <= sizes.seqlen


def test_a_gpu_gets_longer_sequences():
    longest = {device: max(case.seqlen_q for case in drawn(ALL, device=device)[0]) for device in ("cpu", "cuda")}
    assert longest["cpu"] <= 130 and longest["cuda"] > 500


def test_stretched_sequences_are_longer():
    cases, _ = drawn(ALL, Draws(stretch=8))
    assert max(case.seqlen_q for case in cases) > 260


# --- edges ---------------------------------------------------------------------------------------------------------------


def test_edges_are_around_every_power_of_two():
    assert edges(20) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 16, 17, 18]


def test_edges_hold_a_tile_and_a_tail_of_one_and_two():
    """A mask one key short shows at 65, one key long at 66 (at 65 the last query sees every key anyway)."""
    assert {63, 64, 65, 66, 127, 128, 129, 130, 257} <= set(edges(300))


def test_edges_keep_to_their_bounds():
    assert edges(65, 33) == [33, 34, 63, 64, 65] and edges(14, 11) == []


# --- what a law wants ----------------------------------------------------------------------------------------------------

WANTS = {
    "causal": Draws(causal=True),
    "not_causal": Draws(causal=False),
    "cross": Draws(cross=True),
    "square": Draws(cross=False),
    "gqa": Draws(gqa=True),
    "no_gqa": Draws(gqa=False),
    "bias": Draws(bias=True),
    "no_bias": Draws(bias=False),
    "matrix": Draws(bias="matrix"),
    "masks": Draws(bias=True, bias_masks=("right", "dead_row")),
    "regimes": Draws(regimes=("exact", "flat")),
    "scales": Draws(default_scale=False, scales=(0.0, 2.0)),
    "dtypes": Draws(dtypes=(torch.float16,)),
    "layouts": Draws(layouts=("packed", "gapped")),
    "lengths": Draws(seqlen_q=(2, 9), seqlen_k=(0, 3), cross=True),
    "where": Draws(where=lambda case: case.seqlen_q % 2 == 0),
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
def test_draws_are_what_the_law_wants(want):
    cases, _ = drawn(ALL, WANTS[want], n=60)
    assert all(FACTS[want](case) for case in cases)


@each_want
def test_nothing_drawn_is_excluded(want):
    """`excludes` judges a case given by --case; it must let pass what the law would have drawn."""
    cases, _ = drawn(ALL, WANTS[want], n=60)
    assert [reason for case in cases if (reason := WANTS[want].excludes(case))] == []


@each_want
def test_what_a_law_does_not_want_is_excluded(want):
    """Over cases drawn without any wish."""
    for case in _of_any_kind(want):
        if not FACTS[want](case):
            assert WANTS[want].excludes(case) is not None, case


@each_want
def test_what_a_law_wants_is_not_excluded(want):
    for case in _of_any_kind(want):
        if FACTS[want](case):
            assert WANTS[want].excludes(case) is None, case


def _of_any_kind(want: str) -> list[Case]:
    return drawn(ALL, Draws(layouts=LAYOUTS if want == "layouts" else ("contiguous",)), n=200)[0]


def test_reasons_for_exclusion_name_the_field():
    reason = Draws(regimes=("exact", "flat")).excludes(Case())
    assert reason == "the law wants regime in exact, flat"


def test_given_scales_stand_beside_the_default():
    cases, _ = drawn(ALL, Draws(scales=(2.0,)))
    assert {case.softmax_scale for case in cases} == {None, 2.0}


def test_no_further_scales_leave_the_default():
    assert {case.softmax_scale for case in drawn(ALL, Draws(scales=()))[0]} == {None}


def test_usual_scales_are_drawn_unless_a_law_says_otherwise():
    assert {case.softmax_scale for case in drawn(ALL)[0]} == {None, *SCALES}


def test_scales_are_not_drawn_where_none_is_taken():
    assert {case.softmax_scale for case in drawn(LEAST, Draws(scales=(2.0,)))[0]} == {None}


def test_layouts_are_contiguous_where_strides_are_not_taken():
    assert {case.layout for case in drawn(LEAST, Draws(layouts=LAYOUTS))[0]} == {"contiguous"}


# --- shrinking -----------------------------------------------------------------------------------------------------------


def test_a_second_tile_shrinks_to_one_row_of_it():
    case = smallest(ALL, lambda c: c.seqlen_q > 64 and c.seqlen_q % 64)
    assert case == Case(seqlen_q=65, seqlen_k=65, headdim=1)


def test_a_partial_tile_of_keys_alone_shrinks_to_one_query():
    case = smallest(ALL, lambda c: c.seqlen_k > 64 and c.seqlen_k % 64, cross=True)
    assert case == Case(seqlen_q=1, seqlen_k=65, headdim=1)


def test_whatever_fails_shrinks_to_the_least_case():
    assert smallest(ALL, lambda c: True) == Case(headdim=1)


def test_a_head_dim_shrinks_to_the_least_that_fails():
    """Not to the least of those drawn now and then (255): a search may come by any way."""
    found = {smallest(ALL, lambda c: c.headdim > 64, start=n).headdim for n in range(4)}
    assert found == {65}


def test_a_wrong_head_shrinks_to_three_of_them():
    assert smallest(ALL, lambda c: c.nheads_k >= 3) == Case(nheads=3, nheads_k=3, headdim=1)


def test_a_bias_shrinks_to_the_plainest_one():
    case = smallest(ALL, lambda c: c.bias == "matrix" and c.seqlen_q > 16)
    assert case == Case(seqlen_q=17, seqlen_k=17, headdim=1, bias="matrix")


def test_masked_and_causal_shrink_together():
    case = smallest(
        ALL, lambda c: c.causal and c.bias_mask == "left" and c.dtype == torch.bfloat16 and c.seqlen_k > 1, cross=False
    )
    # (The heads are left to properties/shrink.py: what they are decides what the bias's choices mean.)
    assert case.but(nheads=1, nheads_k=1) == Case(
        seqlen_q=2, seqlen_k=2, headdim=1, dtype=torch.bfloat16, causal=True, bias="vector", bias_mask="left"
    )


def test_multiples_shrink_to_the_first():
    assert smallest(SQUARE, lambda c: c.seqlen_q > 32) == Case(seqlen_q=64, seqlen_k=64, dtype=torch.float16)


# --- tensors are a function of the case ------------------------------------------------------------------------------------


def fingerprint(text: str) -> str:
    """The sum of all elements, by input, to the last bit."""
    return " ".join(f"{name}={t.double().sum().item().hex()}" for name, t in build(parse_case(text), "cpu").items())


def test_the_same_case_has_the_same_tensors_in_another_process():
    text = "batch=2 seqlen_q=9 seqlen_k=17 nheads=3 headdim=5 bias=matrix bias_mask=left regime=peaked seed=7"
    script = (
        f"import torch; torch.rand(9); from tests.test_cases import fingerprint; print(fingerprint({text!r}), end='')"
    )
    other = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert other.stdout == fingerprint(text)


def test_another_seed_has_other_tensors():
    a, b = (build(Case(seqlen_q=9, seqlen_k=9, seed=n), "cpu") for n in (0, 1))
    assert not any(torch.equal(getattr(a, name), getattr(b, name)) for name in ("q", "k", "v", "dout"))


def test_no_two_inputs_are_alike():
    """q = k, or dout = out's shape filled with v, would hide what mixes them up."""
    x = build(Case(seqlen_q=9, seqlen_k=9), "cpu")
    tensors = [x.q, x.k, x.v, x.dout]
    assert not any(torch.equal(a, b) for n, a in enumerate(tensors) for b in tensors[:n])
