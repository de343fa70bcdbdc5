"""The means of v by which laws count keys are compared as they were returned."""

from dataclasses import replace

import pytest

from flash_attest.impls import Precision
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
