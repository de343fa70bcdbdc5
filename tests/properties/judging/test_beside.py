"""One defect does not hide another: after a failure, the law is judged again without the clue of
that failure.
"""

from dataclasses import replace

import pytest
import torch

from flash_attest.impls import torch_math
from flash_attest.properties.cases.case import Case, parse_case
from flash_attest.properties.cases.draws import Draws
from flash_attest.properties.judging.clues import LeftOut, clues_of, leaving_out
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS
from flash_attest.properties.law import laws

OUT = laws()["test_out_matches_the_definition"]
PLAN = Plan(examples=16, try_contract=False, small=True)
seeds = pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))])


def sign_ignored(options):
    scale = options.get("softmax_scale")
    return options if scale is None else options | {"softmax_scale": abs(scale)}


def tail_wrong(q, out):
    """Change the last row of a partial tile of 16 that follows a full tile."""
    n = q.shape[1]
    return out if n < 16 or n % 16 == 0 else torch.cat([out[:, :-1], out[:, -1:] + 0.5], dim=1)


def implementation(forward, **supports):
    declared = replace(torch_math.IMPL.supports, **dict(bias_grad=False, sink_grad=False, lse_grad=False) | supports)
    return replace(torch_math.IMPL, name="tested", forward=forward, backward=None, supports=declared)


def negative_scale(q, k, v, **options):
    return torch_math.forward(q, k, v, **sign_ignored(options))


def negative_scale_and_tail(q, k, v, **options):
    out, lse = negative_scale(q, k, v, **options)
    return tail_wrong(q, out), lse


def dead_rows(q, k, v, bias=None, **options):
    """Return 1 in rows without a key."""
    out, lse = torch_math.forward(q, k, v, bias=bias, **options)
    return torch.where((lse == -torch.inf).transpose(1, 2)[..., None], 1.0, out).to(out.dtype), lse


def not_launched_at_48(q, k, v, **options):
    if q.shape[-1] == 48:
        raise RuntimeError("invalid configuration argument")
    return torch_math.forward(q, k, v, **options)


# --- two defects ----------------------------------------------------------------------------------


@seeds
def test_two_defects_are_both_in_the_verdict(seed):
    result = judge(OUT, implementation(negative_scale_and_tail), replace(PLAN, seed=seed))
    assert result.verdict == FAIL
    one, other = result.smallest, result.beside
    assert other.startswith("also wrong without ")
    section = result.message.split("\nAlso wrong without ")[1].splitlines()
    cases = [parse_case(one), parse_case(section[2].strip())]
    assert sorted([(case.softmax_scale or 0) < 0 for case in cases]) == [False, True], cases
    assert section[3].strip() == f"pytest '{OUT.test_id('tested')}' --case '{cases[1]}'"


def test_a_single_defect_says_that_the_rest_is_right():
    """It costs one more search at most, whose cases are counted."""
    (_, alone), (result, further) = calls_of(negative_scale, goes_on=False), calls_of(negative_scale)
    assert result.verdict == FAIL and result.beside == "right on 16 cases without softmax_scale -0.25"
    assert "\nWithout softmax_scale -0.25\n  right on 16 cases\n" in result.message
    assert PLAN.examples <= further - alone <= PLAN.examples + 40 and result.cases > PLAN.examples


def test_a_head_dim_that_cannot_be_launched_hides_nothing():
    """The message names the head dims that are right."""
    impl = implementation(not_launched_at_48, headdims={16, 32, 48, 64})
    result = judge(OUT, impl, PLAN)
    assert result.reason == "forward raises RuntimeError: invalid configuration argument"
    assert result.beside == "right on 16 cases without headdim 48"
    assert "\n  other head dims:   right at all of 16 32 64\n" in result.message and "together" not in result.message


@pytest.mark.parametrize(
    "law",
    (
        "test_out_matches_the_definition",
        pytest.param("test_huge_scores_match_the_definition", marks=pytest.mark.thorough),
    ),
)
def test_rows_without_keys_hide_nothing(law):
    """A mask of the bias leaves the rows without keys, or there are more queries than keys."""
    result = judge(laws()[law], implementation(dead_rows), PLAN)
    assert result.verdict == FAIL and result.beside == "right on 16 cases without rows that may see no key"


# --- the plainest case ----------------------------------------------------------------------------


def wrong_where(wrong):
    """Return attention that is off by 1 where wrong(q, k, options)."""

    def forward(q, k, v, **options):
        out, lse = torch_math.forward(q, k, v, **options)
        return out + wrong(q, k, options), lse

    return implementation(forward)


@seeds
def test_the_number_of_heads_is_blamed_and_not_gqa(seed):
    result = judge(OUT, wrong_where(lambda q, k, options: q.shape[2] > 1), replace(PLAN, seed=seed))
    assert result.clue == "2 or more heads" and parse_case(result.smallest).nheads_k == 2


@seeds
def test_heads_of_all_batches_are_blamed(seed):
    impl = wrong_where(lambda q, k, options: q.shape[0] * q.shape[2] > 1)
    assert judge(OUT, impl, replace(PLAN, seed=seed)).clue == "batch * nheads of 2 or more"


def test_gqa_is_blamed_where_it_is_the_cause():
    result = judge(OUT, wrong_where(lambda q, k, options: q.shape[2] > k.shape[2]), PLAN)
    assert result.clue == "nheads_k < nheads"


@seeds
def test_a_plainer_case_becomes_the_headline(seed):
    """Many batches, or many keys: from a case with one key, no smaller step leads to many keys."""
    impl = wrong_where(lambda q, k, options: q.shape[0] >= 60 or k.shape[1] >= 33)
    result = judge(OUT, impl, replace(PLAN, seed=seed))
    smallest = parse_case(result.smallest)
    assert (smallest.batch, smallest.seqlen_k) == (1, 33) and result.clue == "seqlen_k of 33 or more"


def test_a_clue_that_is_not_enough_says_so():
    def both(q, k, options):
        return bool(options.get("causal")) and q.shape[1] > 16 and q.shape[1] % 16 == 1

    message = judge(OUT, wrong_where(both), PLAN).message
    assert "\n  causal alone is not enough: right with seqlen_q=" in message


def test_what_another_failure_lacks_is_named():
    """The words name only what the other case lacks, not all clues together."""
    left_out = LeftOut(clues_of(Judgement(OUT, torch_math.IMPL), Case(headdim=65, causal=True), lambda case: False))
    assert str(left_out) == "causal and headdim 65 together"
    assert left_out.lacking(Case(headdim=65)) == "causal"
    assert left_out.lacking() == "causal or without headdim 65"


# --- what it costs --------------------------------------------------------------------------------


def calls_of(forward, law=OUT, **changed):
    count = [0]

    def counted(q, k, v, **options):
        count[0] += 1
        return forward(q, k, v, **options)

    return judge(law, implementation(counted), replace(PLAN, **changed)), count[0]


def test_a_law_that_holds_costs_nothing_more():
    result, calls = calls_of(torch_math.forward)
    assert (result.verdict, result.beside, calls) == (PASS, "", PLAN.examples)


def test_what_is_wrong_everywhere_is_not_searched_again():
    def wrong(q, k, v, **options):
        out, lse = torch_math.forward(q, k, v, **options)
        return out + 1, lse

    assert judge(OUT, implementation(wrong), PLAN).beside == ""


def test_a_given_case_is_not_searched_beside():
    case = parse_case("seqlen_q=4 headdim=8 softmax_scale=-0.25")
    result = judge(OUT, implementation(negative_scale), replace(PLAN, case=case))
    assert result.verdict == FAIL and result.beside == ""


# --- clues ----------------------------------------------------------------------------------------


def words(law, case, fails=lambda case: False, impl=torch_math.IMPL):
    return str(LeftOut(clues_of(Judgement(law, impl), case, fails)))


@pytest.mark.parametrize(
    ("case", "want"),
    [
        (Case(headdim=1), ""),
        (Case(headdim=1, seqlen_q=65, seqlen_k=65), "lengths of 65 or more"),
        (Case(headdim=1, seqlen_q=65, seqlen_k=65, causal=True), "causal"),
        (Case(headdim=65), "headdim 65"),
        (Case(headdim=1, batch=2), "batch 2 or more"),
        (Case(headdim=1, nheads=2, nheads_k=1), "nheads_k < nheads"),
        (Case(headdim=1, dtype=torch.float16, seqlen_q=2), "dtype float16 and seqlen_q != seqlen_k together"),
        (Case(headdim=1, bias="matrix", bias_mask="right"), "bias matrix and bias_mask right together"),
        (Case(headdim=1, bias="matrix", bias_mask="dead_row"), "rows that may see no key"),
        (Case(headdim=1, seqlen_q=2, causal=True), "rows that may see no key"),
    ],
)
def test_clues_are_what_is_not_plain(case, want):
    assert words(OUT, case) == want


def test_what_the_law_always_draws_is_no_clue():
    causal = laws()["test_query_sees_exactly_its_prefix"]
    assert words(causal, Case(headdim=1, seqlen_q=3, seqlen_k=3, causal=True)) == ""


def test_values_that_fail_too_belong_to_the_clue():
    """If such values did not belong to the clue, the same defect would be found again."""
    ignores_the_scale = words(OUT, Case(headdim=1, softmax_scale=0.1), lambda case: case.softmax_scale is not None)
    assert ignores_the_scale == "softmax_scale 0.1, 1.0, -0.25"
    assert words(OUT, Case(headdim=65), lambda case: case.headdim > 64) == "headdim 65 or more"


def test_lengths_that_differ_for_nothing_are_no_clue():
    case = Case(headdim=1, seqlen_q=17, seqlen_k=1)
    assert words(OUT, case, lambda other: other.seqlen_q > 16) == "seqlen_q of 17 or more"


@pytest.mark.parametrize("case", [
    Case(headdim=1, softmax_scale=-0.25), Case(headdim=1, seqlen_q=65, seqlen_k=65), Case(headdim=64),
    Case(headdim=1, causal=True, bias="matrix", bias_mask="dead_row"), Case(headdim=1, batch=2, nheads=2, nheads_k=2),
])  # fmt: skip
def test_no_drawn_case_has_what_is_left_out(case):
    left_out = LeftOut(clues_of(Judgement(OUT, torch_math.IMPL), case, lambda case: False))
    seen = []
    law = replace(OUT, draws=leaving_out(OUT.draws, left_out), function=lambda trial: seen.append(trial.case))
    assert judge(law, torch_math.IMPL, PLAN).verdict == PASS
    assert len(seen) == PLAN.examples and left_out.holds(case) and not any(map(left_out.holds, seen))


def test_the_condition_of_the_law_is_kept():
    left_out = LeftOut(clues_of(Judgement(OUT, torch_math.IMPL), Case(headdim=1, causal=True), lambda case: False))
    draws = leaving_out(Draws.of(where=lambda case: case.batch == 1), left_out)
    assert draws.excludes(Case(batch=2)) and draws.excludes(Case(causal=True)) and draws.excludes(Case()) is None
