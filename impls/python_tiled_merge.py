"""The merge of parts of the keys, as split-KV decoding has it: weights from the parts' lse.

    m = max_n lse_n        w_n = exp(lse_n - m)        out = sum_n w_n out_n / sum_n w_n
    lse = m + log(sum_n w_n)

A part without keys has out 0 and lse -inf, so its weight is 0. A row that sees no key in any part
has m = -inf, where exp(-inf - -inf) would be NaN: its m counts as 0.
"""

import torch

from flash_attest.impls import Implementation, Precision, Supports
from flash_attest.impls.contract.arguments import check_like
from flash_attest.impls.contract.shares import FORM_OF_TILED
from flash_attest.impls.python_tiled import HEADDIMS_V, INF

DTYPES = {torch.float32, torch.float16, torch.bfloat16}
MOST_PARTS = 64


def forward(out_parts, lse_parts, *, out_dtype):
    """(n, b, sq, h, dv), (n, b, h, sq) float32 -> out (b, sq, h, dv) in out_dtype, lse (b, h, sq).

    Raises ValueError for a call outside of `supports`.
    """
    parts, batch, seqlen_q, nheads, _ = out_parts.shape
    if out_dtype not in DTYPES:
        raise ValueError(f"python_tiled_merge: out_dtype is {out_dtype}: should be a supported dtype")
    check_like("out_parts", out_parts, out_parts.shape, torch.float32, out_parts.device)
    check_like("lse_parts", lse_parts, (parts, batch, nheads, seqlen_q), torch.float32, out_parts.device)
    out, lse = merged(out_parts, lse_parts.transpose(2, 3).unsqueeze(4))
    return out.to(out_dtype), lse.squeeze(3).transpose(1, 2)


def merged(out_parts, lse_parts):
    """(n, ..., dv), (n, ..., 1) -> out (..., dv), lse (..., 1), float32, over any rows."""
    m = torch.full_like(lse_parts[0], -INF)
    for lse_n in lse_parts:
        m = torch.maximum(m, lse_n)
    m_safe = m.masked_fill(m == -INF, 0.0)  # no part has a key: exp(-inf - 0) = 0
    l, acc = torch.zeros_like(m), torch.zeros_like(out_parts[0])
    for out_n, lse_n in zip(out_parts, lse_parts, strict=True):
        weight = torch.exp(lse_n - m_safe)
        l = l + weight
        acc = acc + weight * out_n
    return torch.where(l == 0, 0.0, acc / l), m + torch.log(l)


IMPL = Implementation(
    name="python_tiled_merge",
    forward=forward,
    devices={"cpu"},  # as python_tiled
    supports=Supports(
        form="parts",
        dtypes=DTYPES,
        headdims=range(1, 257),
        cross=True,
        gqa=True,
        headdims_v=HEADDIMS_V,
        splits=range(1, MOST_PARTS + 1),
        strides=True,
    ),
    lse="natural",
    precision=Precision(merge="lse"),
    share=FORM_OF_TILED,
)
