"""Guesses at a cause are read off a specimen of two tiles, and hold on all cases at hand."""

import math
from dataclasses import replace

import pytest
import torch

from flash_attest.impls import torch_math
from flash_attest.properties.cases.case import Case
from flash_attest.properties.checks.reading import Guess, Values
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.judging import at_hand, conformance
from flash_attest.properties.judging.at_hand import AtHand, some
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS
from flash_attest.properties.law import laws
from tests.properties.mistakes import attention

PREFIX = laws()["test_query_sees_exactly_its_prefix"]
ALIGNMENT = laws()["test_alignment_is_as_declared"]
PADDING = laws()["test_padding_keys_count_nothing"]
GRADIENTS = laws()["test_gradients_match_the_definition"]
OUT = laws()["test_out_matches_the_definition"]
LSE = laws()["test_lse_matches_the_definition"]
PLAN = Plan(examples=30, try_contract=False, small=True)
GUESSED = replace(PLAN, goes_on=False)  # a definition that matches would take the place of a guess


def implementation(forward, backward=None, tile=None, accepts=None, **supports):
    least = dict(causal="never", bias="none", bias_grad=False, softmax_scale=False, gqa=False, cross=False)
    least |= dict(window="none", softcap=False, sinks=False, sink_grad=False, lse_grad=False, headdims_v=())
    declared = replace(torch_math.IMPL.supports, **least | supports, accepts=accepts)
    return replace(torch_math.IMPL, name="tested", forward=forward, backward=backward, supports=declared, tile=tile)


def causal(bound):
    """Return an attention in which query i sees the keys up to bound(i, seqlen_q, seqlen_k)."""

    def forward(q, k, v, *, causal=False):
        i, j = torch.arange(q.shape[1])[:, None], torch.arange(k.shape[1])
        seen = j <= bound(i, len(i), len(j)) if causal else None
        s = torch.einsum("bihd,bjhd->bhij", q.float(), k.float()) * q.shape[-1] ** -0.5
        if seen is not None:
            s = s.masked_fill(~seen, -torch.inf)
        out = torch.einsum("bhij,bjhd->bihd", s.softmax(-1).nan_to_num(0.0), v.float())
        return out.to(q.dtype), s.logsumexp(-1)

    return implementation(forward, causal="optional", cross=True)


def of_groups(i, queries, keys):
    """Return the bound of the last of four queries, as in pytorch#195910."""
    return (i // 4 * 4 + 3).clamp(max=queries - 1) + keys - queries


def suggested(result):
    assert result.verdict == FAIL
    return result.message.partition("\nSuggests")[2].partition("\nReplay")[0]


# --- masks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", (PREFIX, ALIGNMENT))
def test_bounds_of_groups_are_named_and_no_alignment(law):
    """The smallest case has two queries, and would fit the other alignment."""
    result = judge(law, causal(of_groups), PLAN)
    assert "each group of 4 queries has the bound of its last query\n" in suggested(result)
    assert "aligned" not in suggested(result)
    assert "  in two tiles: seqlen_q=25" in result.message
    assert "0..2 in each group of 4" in result.message or "0..2 4..6 8..10" in result.message


@pytest.mark.parametrize("law", (PREFIX, ALIGNMENT))
def test_another_alignment_is_named(law):
    result = judge(law, causal(lambda i, queries, keys: i), PLAN)
    assert 'aligned top_left: declare causal_alignment="top_left"' in suggested(result)


def test_the_right_twin_has_no_message():
    result = judge(PREFIX, causal(lambda i, queries, keys: i + keys - queries), PLAN)
    assert (result.verdict, result.message) == (PASS, "")


def test_lengths_that_are_right_contradict_a_guess():
    """Only lengths one above a multiple of 16 are one short, not all partial tiles."""
    impl = causal(lambda i, queries, keys: i + keys - queries - ((i == queries - 1) & (queries % 16 == 1)).int())
    case = Case(seqlen_q=33, seqlen_k=33, headdim=8, causal=True)
    result = judge(PREFIX, replace(impl, tile=(16, 16)), replace(PLAN, case=case))
    assert "one short" not in suggested(result)


# --- lse ------------------------------------------------------------------------------------------


def times_ln2(q, k, v):
    out, lse, _ = attention(q, k, v)
    return out, lse * math.log(2)


def test_lse_times_ln_2_is_named_by_laws_and_contract():
    impl = implementation(times_ln2, dtypes={torch.float32})
    assert conformance.problems(impl, "cpu")[0].startswith("lse is ln 2 times what it should be: ")
    for law in (LSE, PADDING):
        result = judge(law, impl, PLAN)
        assert result.reason.endswith(": lse is ln 2 times what it should be")
        assert "one short" not in result.message


def test_padding_keys_are_named_with_their_tile():
    def forward(q, k, v):
        padded = -k.shape[1] % 32
        k, v = (torch.nn.functional.pad(x, (0, 0, 0, 0, 0, padded)) for x in (k, v))
        return attention(q, k, v)[:2]

    result = judge(PADDING, implementation(forward, dtypes={torch.float32}), PLAN)
    assert "padding keys are counted: right at multiples of 32\n" in suggested(result)


# --- values ---------------------------------------------------------------------------------------


def gradients(factor):
    """Return attention whose dk is wrong by factor(headdim)."""

    def backward(dout, q, k, v, out, lse):
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        with torch.enable_grad():
            dq, dk, dv = torch.autograd.grad(attention(*leaves)[0], leaves, dout)
        return dq, dk * factor(q.shape[-1]), dv

    return implementation(lambda *x: attention(*x)[:2], backward, dtypes={torch.float32})


@pytest.mark.parametrize(
    ("factor", "name"),
    [
        (lambda d: d**-0.5, "(softmax_scale)"),
        (lambda d: d**0.5, "(1 / softmax_scale)"),
        (lambda d: math.log(2), "(ln 2)"),
        (lambda d: 0.5, "0.5 times what they should be\n"),
    ],
)
def test_a_factor_of_a_gradient_is_named(factor, name):
    result = judge(GRADIENTS, gradients(factor), GUESSED)
    assert "a constant factor: the wrong elements of dk are" in suggested(result) and name in suggested(result)


def test_a_factor_that_differs_from_case_to_case_is_not_named():
    result = judge(GRADIENTS, gradients(lambda d: 1 + 1 / (d + 1)), PLAN)
    assert "a constant factor" not in suggested(result)


def test_an_answer_of_an_earlier_call_is_no_factor():
    kept = {}

    def forward(q, k, v):
        key = (q.shape, k.shape)
        return kept.setdefault(key, attention(q, k, v)[:2])

    result = judge(OUT, implementation(forward, dtypes={torch.float32}), PLAN)
    assert "a constant factor" not in result.message


# --- the cases ------------------------------------------------------------------------------------


def test_a_case_that_cannot_be_longer_is_its_own_specimen():
    impl = implementation(times_ln2, dtypes={torch.float32}, accepts=lambda case: None if case.seqlen_k <= 8 else "no")
    result = judge(LSE, impl, PLAN)
    assert result.verdict == FAIL and "in two tiles" not in result.message


@pytest.mark.parametrize("tile", (None, (16, 16)))
def test_a_specimen_costs_a_few_calls(tile, monkeypatch):
    count = [0]

    def forward(q, k, v):
        count[0] += 1
        return times_ln2(q, k, v)

    def calls():
        count[0] = 0
        judge(LSE, implementation(forward, tile=tile, dtypes={torch.float32}), GUESSED)
        return count[0]

    with_it = calls()
    monkeypatch.setattr(at_hand, "MOST_SECONDS", -1.0)
    assert 0 < with_it - calls() <= 3


def test_the_specimen_of_an_emulated_kernel_is_short():
    impl = replace(implementation(times_ln2, tile=(64, 64)), share=0.2)
    broken = LawBroken("", reading=Values.of("lse", Case(), *(torch.ones(1),) * 2, torch.ones(1, dtype=torch.bool)))
    cases = list(at_hand._larger(Judgement(LSE, impl), broken, Case(headdim=1)))
    assert cases and max(case.seqlen_k for case in cases) <= 66


class Reading(Values):
    """A reading with a guess."""

    def __init__(self, holds, least=0):
        object.__setattr__(self, "guess", Guess("a guess", holds=lambda other: other.answer, least=least))
        object.__setattr__(self, "answer", holds)


@pytest.mark.parametrize(
    ("answers", "least", "said"),
    [
        ([], 0, True),
        ([True, None], 0, True),
        ([True, False], 0, False),
        ([None], 2, False),
        ([True], 2, True),
    ],
)
def test_one_failing_case_is_enough_to_contradict_a_guess(answers, least, said, monkeypatch):
    monkeypatch.setattr(at_hand.read_off, "guesses", lambda reading: [reading.guess])
    specimen = LawBroken("", reading=Reading(None, least))
    cases = AtHand([(specimen, Case()), *((LawBroken("", reading=Reading(a)), Case()) for a in answers)])
    cases.specimen = cases.failing[0]
    assert at_hand.guesses(Judgement(OUT, torch_math.IMPL), cases) == ["a guess"] * said


def test_a_bounded_number_of_failures_is_kept():
    failures = [(LawBroken(str(n)), Case(seqlen_q=n)) for n in range(100)]
    kept = [case.seqlen_q for _, case in some(failures)]
    assert kept == [*range(12), *range(88, 100)] and some(failures[:24]) == failures[:24]
