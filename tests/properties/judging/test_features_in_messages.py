"""Clues, other windows, shrinking and pictures of cases with a window, a softcap, sinks or dlse."""

import pytest

from flash_attest.properties.cases.case import Case, parse_case
from flash_attest.properties.cases.features import FEATURES
from flash_attest.properties.checks.wrong import wrong_in
from flash_attest.properties.judging.clues import clues_of, not_plain, value_clue
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.judging.neighbours import other_windows
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.shrink import steps_from
from flash_attest.properties.law import laws
from flash_attest.properties.trial import Trial
from tests.properties.instead.stand_ins import making
from tests.properties.mistakes import OF_FEATURES

OUT = laws()["test_out_matches_the_definition"]
ON = parse_case("seqlen_q=9 seqlen_k=9 headdim=1 window=5:2 softcap=2.0 sinks=high dlse=True")


def judgement_of(impl, law=OUT) -> Judgement:
    return Judgement(law, impl, Plan(try_contract=False))


@pytest.mark.parametrize(
    ("window", "line"),
    [
        ("3:", "other windows of 12 keys, left = n:   right at 0 1 2   wrong at 4 5 6   (wrong at 3 and more)"),
        ("5:", "other windows of 14 keys, left = n:   right at 0 1 2   wrong at 3 4 6 7 10   (wrong at 3 and more)"),
    ],
)
def test_sizes_of_the_window_that_are_right_are_listed(window, line):
    law, impl = OF_FEATURES["window_one_key_longer"]
    (sizes,) = other_windows(judgement_of(impl, law), parse_case(f"seqlen_q=5 headdim=1 window={window}"))
    assert sizes.line == line


def test_a_case_without_a_window_has_no_other_windows():
    assert other_windows(judgement_of(making(None)), Case(headdim=1)) == []


def test_each_feature_is_turned_off_or_made_smaller():
    steps = [*steps_from(judgement_of(making(None)), ON)]
    assert {ON.but(**off) for off in ({"window": None}, {"softcap": None}, {"sinks": None}, {"dlse": False})} <= {
        *steps
    }
    windows = [step.window for step in steps if step.window not in (None, ON.window)]
    assert windows[:2] == [(5, None), (None, 2)] and {(0, 2), (4, 2), (5, 0), (5, 1)} <= {*windows}
    assert {step.softcap for step in steps} == {2.0, None, 5.0} and "count" in {step.sinks for step in steps}


def test_values_narrower_than_keys_become_as_wide():
    case = parse_case("seqlen_q=9 headdim=7 headdim_v=13")
    assert case.but(headdim_v=7) in steps_from(judgement_of(making(None)), case)


@pytest.mark.parametrize(
    ("feature", "words"),
    [("window", "window"), ("softcap", "softcap"), ("sinks", "sinks"), ("dlse", "a gradient of lse")],
)
def test_a_clue_names_the_feature_whatever_its_value(feature, words):
    """A failure that needs one feature has one clue."""
    judgement = judgement_of(making(None))
    case = Case(seqlen_q=9, seqlen_k=9, headdim=1).but(**{feature: getattr(ON, feature)})
    assert not_plain(judgement, case) == {feature}
    off = FEATURES[feature].neutral
    (clue,) = clues_of(judgement, case, lambda other: FEATURES[feature].value(other) != off)
    assert clue.words == words and clue.has(case) and not clue.has(clue.without(case))


def test_a_clue_lists_some_values():
    assert value_clue(FEATURES["softcap"], [5.0, 2.0], None).words == "softcap 5.0, 2.0"
    assert value_clue(FEATURES["window"], ["left"], None).words == "window on the left"


@pytest.mark.parametrize(
    ("case", "edges"),
    [
        ("seqlen_q=4 seqlen_k=6 headdim=1 window=1:0", (1, 2)),
        ("seqlen_q=4 seqlen_k=6 headdim=1 window=3:", (-1, None)),
        ("seqlen_q=4 seqlen_k=6 headdim=1 window=:1", (None, 3)),
        ("seqlen_q=4 seqlen_k=6 headdim=1 window=3: causal=True", (-1, 2)),
        ("seqlen_q=4 seqlen_k=6 headdim=1", (None, None)),
    ],
)
def test_a_picture_knows_both_edges(case, edges):
    trial = Trial(making(None), parse_case(case), "cpu")
    wrong = wrong_in(trial, "out", trial.x.dout != trial.x.dout)
    assert (wrong.start, wrong.diagonal) == edges
