"""Correct kernels that a law once cried wolf at: each a way to compute that the field uses."""

import pytest
import torch

from impls import Implementation, Supports, torch_math
from oracle.conservation import SAMPLE, sample_rows
from properties.case import parse_case
from properties.judge import judge
from properties.law import all_laws
from properties.plan import Plan
from properties.verdict import PASS


def law_called(name):
    return next(law for law in all_laws() if law.name == name)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_fused_exponent_may_miss_a_copied_row_where_scores_are_large(dtype):
    """exp2(q k c - m c) in one fused step is off by a rounding of m c, which P shows once m passes 2048 in float16."""

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
    result = judge(law_called("test_winning_key_is_copied"), fused, Plan(examples=300))
    assert result.verdict == PASS, result.message


@pytest.mark.parametrize("seed", [14, 34, 43, 48])
def test_noise_of_a_sum_may_come_from_one_row_of_five_hundred(seed):
    """3 of 513 rows see a key, and one of them rounds: a sample of all rows missed it, and z was 1e7."""
    case = parse_case(f"seqlen_q=513 seqlen_k=3 headdim=1 dtype=float32 causal=True regime=selecting seed={seed}")
    result = judge(law_called("test_gradients_of_keys_sum_to_zero"), torch_math.IMPL, Plan(case=case))
    assert result.verdict == PASS, result.message


def sampled(seqlen_q, seqlen_k, hidden=0, **options):
    """Of queries whose first `hidden` keys have a bias of -inf: the rows looked at, and for how many each stands."""
    q, k = (torch.zeros(1, n, 1, 1) for n in (seqlen_q, seqlen_k))
    bias = torch.zeros(1, 1, 1, seqlen_k)
    bias[..., :hidden] = -torch.inf
    rows, each = sample_rows(
        q, k, **dict(causal=True, alignment="bottom_right", bias=bias if hidden else None) | options
    )
    return rows.tolist(), each


def test_rows_without_a_key_are_not_sampled():
    assert sampled(1100, 1040, hidden=1037) == ([1097, 1098, 1099], 1.0)
    assert sampled(1100, 1040, hidden=1040) == ([], 1.0)
    assert sampled(100_000, 3) == ([99_997, 99_998, 99_999], 1.0)
    assert sampled(513, 3) == (list(range(513)), 1.0)  # few scores: all rows
    rows, each = sampled(5000, 4096)
    assert (len(rows), rows[0], rows[-1], each) == (SAMPLE, 904, 4999, 16.0)
    rows, each = sampled(5000, 4096, causal=False)
    assert (len(rows), rows[0], rows[-1], each) == (SAMPLE, 0, 4999, 5000 / 256)
    matrix = torch.zeros(1, 2, 2000, 2000)
    matrix[:, :, :1990] = -torch.inf
    matrix[:, 1, 5, 3] = 0.0
    assert sampled(2000, 2000, bias=matrix)[0] == [5, *range(1990, 2000)]
