"""Regression tests for false positives: correct kernels, computed in ways that are in use, that a law once failed."""

import pytest
import torch

from impls import Implementation, Supports, torch_math
from properties.cases.case import parse_case
from properties.judging.judge import judge
from properties.judging.plan import Plan
from properties.judging.verdict import PASS
from properties.law import laws

FAILED_ONCE = Plan(
    case=parse_case("seqlen_q=16 seqlen_k=33 headdim=127 dtype=float16 batch=2 nheads=2 regime=selecting seed=30")
)
MANY = Plan(examples=300)


@pytest.mark.parametrize(
    "dtype, plan",
    [
        (torch.float16, FAILED_ONCE),
        pytest.param(torch.float16, MANY, marks=pytest.mark.thorough),
        pytest.param(torch.bfloat16, MANY, marks=pytest.mark.thorough),
    ],
)
def test_a_fused_exponent_passes_where_scores_are_large(dtype, plan):
    """exp2(q k c - m c) in one fused step has the rounding error of m c, which shows in P for m above 2048 in float16."""

    def forward(q, k, v):
        c = torch.tensor(q.shape[-1] ** -0.5 * 1.4426950408889634)
        qk = torch.einsum("bihd,bjhd->bhij", q.float(), k.float())
        m = qk.amax(-1, keepdim=True) * c  # rounded to float32
        p = torch.exp2(qk.double() * c.double() - m.double()).float()
        out = torch.einsum("bhij,bjhd->bihd", p.to(v.dtype).float(), v.float()) / p.sum(-1).transpose(1, 2).unsqueeze(
            -1
        )
        return out.to(q.dtype)

    fused = Implementation(
        name="fused", forward=forward, supports=Supports(dtypes={dtype}, headdims=range(1, 257), cross=True)
    )
    result = judge(laws()["test_winning_key_is_copied"], fused, plan)
    assert result.verdict == PASS, result.message


@pytest.mark.parametrize("lengths", ["seqlen_q=513 seqlen_k=3", "seqlen_q=513 seqlen_k=512"])
@pytest.mark.parametrize("seed", [1, 14, 34, 43])
def test_noise_of_a_sum_includes_every_row(lengths, seed):
    """A single row can carry all the noise; the others see no key or have q = 0. Sampling 256 rows gave z = 1e7."""
    case = parse_case(f"{lengths} headdim=1 dtype=float32 causal=True regime=selecting seed={seed}")
    result = judge(laws()["test_gradients_of_keys_sum_to_zero"], torch_math.IMPL, Plan(case=case))
    assert result.verdict == PASS, result.message
