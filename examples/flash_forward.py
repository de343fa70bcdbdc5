"""flash_forward.cu as an Implementation, which runs on the CPU and is traced.

flash-attest check flash_forward.py
"""

from __future__ import annotations

from pathlib import Path

import torch

from flash_attest import Implementation, Supports
from flash_attest.emulator.cuda import load

cu = load(Path(__file__).with_name("flash_forward.cu"), "flash_forward")


def forward(q, k, v, *, causal=False, softmax_scale=None):
    """q (batch, seqlen_q, nheads, headdim), k, v (batch, seqlen_k, nheads, headdim) -> out, lse.

    out is like q, lse (batch, nheads, seqlen_q).
    """
    batch, seqlen_q, nheads, headdim = q.shape
    if k.shape != v.shape or k.shape != (batch, k.shape[1], nheads, headdim):
        raise ValueError(f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)} do not fit together")
    if not all(x.dtype == torch.float32 and x.is_contiguous() for x in (q, k, v)):
        raise ValueError("q, k and v should be float32 and contiguous")
    scale = headdim**-0.5 if softmax_scale is None else softmax_scale
    out, lse = torch.empty_like(q), q.new_empty(batch, nheads, seqlen_q)
    status = cu.flash_forward(q, k, v, out, lse, batch, nheads, seqlen_q, k.shape[1], headdim, scale, causal)
    if status:
        raise RuntimeError(f"flash_forward returns error {status}")
    return out, lse


IMPL = Implementation(
    name="cuda_flash_forward",
    forward=forward,
    devices={"cpu"},
    lse="natural",
    equal_heads={"out", "lse"},
    supports=Supports(
        dtypes={torch.float32}, headdims=range(1, 129), causal="optional", cross=True, softmax_scale=True
    ),
    tile=(32, 32),
    traced=True,
)
