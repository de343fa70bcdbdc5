"""The means of v by which laws count keys are compared as they were returned."""

from dataclasses import replace

import pytest

from flash_attest.impls import Precision, python_tiled
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS
from flash_attest.properties.law import laws
from tests.properties.rounding_kernels import kernel

LAW = laws()["test_out_averages_exactly_its_prefix"]
RIGHT = kernel(Precision(), backward=False)


def times(factor):
    def forward(q, k, v, **options):
        out, lse = RIGHT.forward(q, k, v, **options)
        return (factor * out.float()).to(out.dtype), lse

    return replace(RIGHT, forward=forward)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_few_keys_hide_no_error(dtype):
    """A mean of 0.6 instead of 0.5 counts 1.2 of 2 keys, which rounds to 1."""
    plan = Plan(case=parse_case(f"seqlen_q=2 seqlen_k=2 headdim=2 dtype={dtype} causal=True"), try_contract=False)
    result = judge(LAW, times(1.2), plan)
    assert result.verdict == FAIL
    assert result.reason.startswith("out*keys[b=0 i=0 h=0 d=0] is 1.2") and ", should be 1 " in result.reason
    assert judge(LAW, times(1.0), plan).verdict == PASS


def test_one_key_of_many_shows_in_bfloat16():
    """59 of 60 keys, the most that share a column."""
    case = parse_case("seqlen_q=60 seqlen_k=60 headdim=1 dtype=bfloat16 causal=True")
    plan = Plan(case=case, try_contract=False)
    assert judge(LAW, times(59 / 60), plan).verdict == FAIL
    assert judge(LAW, times(1.0), plan).verdict == PASS


def without(name):
    """Return the tiled reference with a keyword that it takes and ignores."""

    def forward(q, k, v, **options):
        return python_tiled.forward(q, k, v, **options | {name: None})

    return replace(python_tiled.IMPL, name=f"without_{name}", forward=forward)


def lse_of_the_keys_alone(q, k, v, **options):
    out, _ = python_tiled.forward(q, k, v, **options)
    return out, python_tiled.forward(q, k, v, **options | {"sinks": None})[1]


def reason(law, impl, case):
    result = judge(laws()[law], impl, Plan(case=parse_case(case), try_contract=False, goes_on=False))
    return result.reason if result.verdict == FAIL else result.verdict


def test_the_share_of_a_sink_is_named():
    case = "seqlen_q=3 seqlen_k=3 headdim=4 dtype=float32 sinks=count"
    assert reason("test_sink_takes_its_share", without("sinks"), case) == (
        "query 0 counts 3, should count 4: 3 keys and a sink of 1: "
        "the weights of its keys sum to 1 beside the sink, should be 0.75"
    )
    assert reason("test_sink_takes_its_share", python_tiled.IMPL, case) == PASS


def test_an_lse_without_its_sink_is_named():
    supports = replace(python_tiled.IMPL.supports, lse_grad=False)
    impl = replace(python_tiled.IMPL, name="keys_alone", forward=lse_of_the_keys_alone, supports=supports)
    case = "seqlen_q=3 seqlen_k=3 headdim=4 dtype=float32 sinks=count"
    said = reason("test_sink_takes_its_share", impl, case)
    assert said == "query 0 counts 3, should count 4: 3 keys and a sink of 1: lse is without the sink"
    assert reason("test_sink_takes_its_share", replace(impl, sink_in_lse=False), case) == PASS


def test_a_score_that_is_not_capped_is_named():
    case = "seqlen_q=1 seqlen_k=2 headdim=4 dtype=bfloat16 softcap=5"
    said = reason("test_capped_scores_are_the_cap", without("softcap"), case)
    assert said.startswith("lse[b=0 h=0 i=0] is ") and said.endswith("should be -5 + ln 2, as query 0 sees 2 keys")


def test_a_window_that_is_ignored_shows_its_keys():
    case = "seqlen_q=1 seqlen_k=6 headdim=4 dtype=float32 window=3:"
    said = reason("test_query_sees_exactly_its_window", without("window"), case)
    assert said == "query 0 sees 6 keys, should see 4: keys 0..1 are extra"
