"""Drawn cases are as the law wants them, and a case given by --case is excluded if it is not."""

import pytest
import torch

from flash_attest.properties.cases.case import LAYOUTS, Case
from flash_attest.properties.cases.draws import Draws
from flash_attest.properties.cases.features import SCALES
from tests.properties.cases.drawing import ALL, ANY, LEAST, drawn

# name -> what a law wants, and a condition that its cases then fulfil
WANTS = {
    "causal": (Draws.of(causal=True), lambda c: c.causal),
    "not_causal": (Draws.of(causal=False), lambda c: not c.causal),
    "cross": (Draws.of(cross=True), lambda c: True),
    "square": (Draws.of(cross=False), lambda c: c.seqlen_q == c.seqlen_k),
    "gqa": (Draws.of(gqa=True), lambda c: c.nheads_k < c.nheads),
    "no_gqa": (Draws.of(gqa=False), lambda c: c.nheads_k == c.nheads),
    "bias": (Draws.of(bias=True), lambda c: c.bias is not None),
    "no_bias": (Draws.of(bias=False), lambda c: c.bias is None),
    "matrix": (Draws.of(bias="matrix"), lambda c: c.bias == "matrix"),
    "masks": (Draws.of(bias=True, bias_mask=("right", "dead_row")), lambda c: c.bias_mask in ("right", "dead_row")),
    "regimes": (Draws.of(regime=("exact", "flat")), lambda c: c.regime in ("exact", "flat")),
    "scales": (Draws.of(softmax_scale=(0.0, 2.0)), lambda c: c.softmax_scale in (0.0, 2.0)),
    "dtypes": (Draws.of(dtype=torch.float16), lambda c: c.dtype == torch.float16),
    "layouts": (Draws.of(layout=("packed", "gapped")), lambda c: c.layout in ("packed", "gapped")),
    "lengths": (
        Draws.of(seqlen_q=(2, 9), seqlen_k=(0, 3), cross=True),
        lambda c: 2 <= c.seqlen_q <= 9 and 0 <= c.seqlen_k <= 3,
    ),
    "where": (Draws.of(where=lambda case: case.seqlen_q % 2 == 0), lambda c: c.seqlen_q % 2 == 0),
}
OF_ALL_LAYOUTS = Draws.of(layout=LAYOUTS)
each_want = pytest.mark.parametrize("want", WANTS)


@each_want
def test_drawn_cases_are_what_the_law_wants(want):
    """`excludes` checks a case of --case, and must accept every case that the law could draw."""
    draws, fact = WANTS[want]
    cases, _ = drawn(ALL, draws, n=40)
    assert all(fact(case) for case in cases)
    assert [reason for case in cases if (reason := draws.excludes(case))] == []


@each_want
def test_exactly_the_unwanted_cases_are_excluded(want):
    """The cases are drawn for a law that wants nothing in particular."""
    draws, fact = WANTS[want]
    cases, _ = drawn(ALL, OF_ALL_LAYOUTS if want == "layouts" else ANY)
    assert [case for case in cases if (draws.excludes(case) is None) != fact(case)] == []


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


def test_a_law_cannot_want_what_there_is_not():
    with pytest.raises(TypeError, match=r"regimes: a law cannot want that; it can want dtype, .*regime.* stretch"):
        Draws.of(regimes=("spread",))
