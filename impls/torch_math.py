"""Attention by the formula, softmax(scale Q K^T + bias) V, in float32.

The whole matrix is in memory. The code is short, so that it is easy to check. Half inputs are first
converted to float32, and autograd computes the backward. Products are in float32 if torch has its
default, torch.backends.cuda.matmul.allow_tf32 = False.
"""

import torch

from flash_attest.impls import Implementation, Precision, Supports
from flash_attest.impls.torch_refusals import refuses_far_rows


def forward(q, k, v, *, causal=False, bias=None, softmax_scale=None):
    """q (b, sq, h, d), k, v (b, sk, hk, d) -> out (b, sq, h, d), lse (b, h, sq) float32."""
    check(q, k, v, bias)
    seqlen_q, nheads, headdim = q.shape[1:]
    seqlen_k = k.shape[1]
    scale = headdim**-0.5 if softmax_scale is None else softmax_scale

    s = scale * torch.einsum("bihd,bjhd->bhij", q.float(), per_query_head(k.float(), nheads))
    if bias is not None and bias.dtype == torch.bool:
        s, bias = s.masked_fill(~bias, float("-inf")), None
    if bias is not None:
        s = s + bias.float()
    if causal:  # bottom right: query i sees keys 0 .. i + seqlen_k - seqlen_q
        visible = torch.ones(seqlen_q, seqlen_k, dtype=torch.bool, device=q.device).tril(seqlen_k - seqlen_q)
        s = s.masked_fill(~visible, float("-inf"))

    # In a row that sees no key, softmax gives 0/0 = NaN, and NaN times the zero gradient of a later
    # mask is still NaN. So the row is replaced before softmax and after it.
    dead = (s == float("-inf")).all(-1, keepdim=True)
    p = s.masked_fill(dead, 0.0).softmax(-1).masked_fill(dead, 0.0)
    out = torch.einsum("bhij,bjhd->bihd", p, per_query_head(v.float(), nheads))
    return out.to(q.dtype), s.detach().logsumexp(-1)


def per_query_head(x, nheads):
    """(b, sk, hk, d) -> (b, sk, h, d): query head h reads key head h // (nheads / nheads_k)."""
    group = nheads // x.shape[2]
    return x.unsqueeze(3).expand(-1, -1, -1, group, -1).flatten(2, 3)


def check(q, k, v, bias):
    """Raise ValueError for a call outside of `supports`."""
    batch, seqlen_q, nheads, headdim = q.shape
    seqlen_k, nheads_k = k.shape[1:3]
    if not (q.dtype == k.dtype == v.dtype) or q.dtype not in IMPL.supports.dtypes:
        raise ValueError(f"torch_math: q, k, v are {q.dtype}, {k.dtype}, {v.dtype}: should be one supported dtype")
    if k.shape != v.shape or k.shape != (batch, seqlen_k, nheads_k, headdim):
        raise ValueError(f"torch_math: q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)} do not fit together")
    if headdim not in IMPL.supports.headdims:
        raise ValueError(f"torch_math: headdim={headdim}: should be 1 to 1024")
    if nheads_k == 0 or nheads % nheads_k:
        raise ValueError(f"torch_math: nheads={nheads} should be a multiple of nheads_k={nheads_k}")
    if reason := refuses_far_rows(q, k, v):
        raise ValueError(f"torch_math: {reason}")
    if bias is not None:
        full = (batch, nheads, seqlen_q, seqlen_k)
        fits = bias.dim() == 4 and bias.shape[3] == seqlen_k
        if not fits or any(n not in (1, want) for n, want in zip(bias.shape, full, strict=True)):
            raise ValueError(f"torch_math: bias {tuple(bias.shape)} does not broadcast to {full}")


IMPL = Implementation(
    name="torch_math",
    forward=forward,
    backward="autograd",
    supports=Supports(
        dtypes={torch.float32, torch.float16, torch.bfloat16},
        headdims=range(1, 1025),
        causal="optional",
        bias={"vector", "matrix", "boolean_vector", "boolean_matrix"},
        bias_grad=True,
        cross=True,
        gqa=True,
        softmax_scale=True,
        strides=True,
    ),
    causal_alignment="bottom_right",
    lse="natural",
    empty_rows="zero",
    precision=Precision(probabilities="float32"),
)
