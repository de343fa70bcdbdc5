"""Attention by the formula, softmax(softcap tanh(scale Q K^T / softcap) + bias) V, in float32.

The whole matrix is in memory. The code is short, so that it is easy to check. Half inputs are first
converted to float32, and autograd computes the backward. Products are in float32 if torch has its
default, torch.backends.cuda.matmul.allow_tf32 = False.
"""

import torch

from flash_attest.impls import Implementation, Precision, Supports
from flash_attest.impls.contract.arguments import check_sinks, check_softcap, check_window
from flash_attest.impls.torch_refusals import refuses_far_rows

INF = float("inf")


def forward(q, k, v, *, causal=False, window=None, bias=None, softmax_scale=None, softcap=None, sinks=None):
    """q (b, sq, h, d), k (b, sk, hk, d), v (b, sk, hk, dv), sinks (h) -> out, lse.

    out is (b, sq, h, dv), lse (b, h, sq) in float32.
    """
    check(q, k, v, window, bias, softcap, sinks)
    batch, seqlen_q, nheads, headdim = q.shape
    seqlen_k = k.shape[1]
    scale = headdim**-0.5 if softmax_scale is None else softmax_scale

    s = scale * torch.einsum("bihd,bjhd->bhij", q.float(), per_query_head(k.float(), nheads))
    if softcap is not None:
        s = softcap * torch.tanh(s / softcap)
    if bias is not None and bias.dtype == torch.bool:
        s, bias = s.masked_fill(~bias, -INF), None
    if bias is not None:
        s = s + bias.float()
    left, right = (INF if side is None else side for side in window or (None, None))
    if causal:  # a window without keys on the right
        right = 0
    if min(left, right) < INF:  # bottom right: query i sees keys i + seqlen_k - seqlen_q - left .. + right
        beyond = torch.arange(seqlen_k, device=q.device) - torch.arange(seqlen_q, device=q.device).unsqueeze(1)
        beyond = beyond - (seqlen_k - seqlen_q)
        s = s.masked_fill((beyond < -left) | (beyond > right), -INF)
    if sinks is not None:  # one more key, without a value
        s = torch.cat([s, sinks[:, None, None].expand(batch, nheads, seqlen_q, 1)], -1)

    # In a row that sees no key, softmax gives 0/0 = NaN, and NaN times the zero gradient of a later
    # mask is still NaN. So the row is replaced before softmax and after it.
    dead = (s == -INF).all(-1, keepdim=True)
    s = s.masked_fill(dead, 0.0)
    p = s.softmax(-1).masked_fill(dead, 0.0)[..., :seqlen_k]
    out = torch.einsum("bhij,bjhd->bihd", p, per_query_head(v.float(), nheads))
    return out.to(q.dtype), s.logsumexp(-1).masked_fill(dead.squeeze(-1), -INF)


def per_query_head(x, nheads):
    """(b, sk, hk, d) -> (b, sk, h, d): query head h reads key head h // (nheads / nheads_k)."""
    group = nheads // x.shape[2]
    return x.unsqueeze(3).expand(-1, -1, -1, group, -1).flatten(2, 3)


def check(q, k, v, window, bias, softcap, sinks):
    """Raise ValueError for a call outside of `supports`."""
    batch, seqlen_q, nheads, headdim = q.shape
    seqlen_k, nheads_k = k.shape[1:3]
    if not (q.dtype == k.dtype == v.dtype) or q.dtype not in IMPL.supports.dtypes:
        raise ValueError(f"torch_math: q, k, v are {q.dtype}, {k.dtype}, {v.dtype}: should be one supported dtype")
    if k.shape[:3] != v.shape[:3] or k.shape != (batch, seqlen_k, nheads_k, headdim):
        raise ValueError(f"torch_math: q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)} do not fit together")
    if headdim not in IMPL.supports.headdims or v.shape[3] not in IMPL.supports.headdims:
        raise ValueError(f"torch_math: headdim={headdim}, headdim_v={v.shape[3]}: should be 1 to 1024")
    if nheads_k == 0 or nheads % nheads_k:
        raise ValueError(f"torch_math: nheads={nheads} should be a multiple of nheads_k={nheads_k}")
    if reason := refuses_far_rows(q, k, v):
        raise ValueError(f"torch_math: {reason}")
    if bias is not None:
        full = (batch, nheads, seqlen_q, seqlen_k)
        fits = bias.dim() == 4 and bias.shape[3] == seqlen_k
        if not fits or any(n not in (1, want) for n, want in zip(bias.shape, full, strict=True)):
            raise ValueError(f"torch_math: bias {tuple(bias.shape)} does not broadcast to {full}")
    check_window(window)
    check_softcap(softcap)
    check_sinks(sinks, nheads, q.device)


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
        window={"left", "right", "both"},
        softcap=True,
        sinks=True,
        sink_grad=True,
        lse_grad=True,
        headdims_v={(1, 3), (64, 16), (192, 128), (576, 512)},
        strides=True,
    ),
    causal_alignment="bottom_right",
    lse="natural",
    empty_rows="zero",
    precision=Precision(probabilities="float32"),
)
