"""An independent attention with which the oracle is checked: tiles of keys and an online softmax.

It shares no code with the oracle: masks and head pairing are written again, the visible keys of a
row are counted instead of compared by position, and the backward recomputes P from lse, as kernels
do. It is slow, in float64.
"""

from __future__ import annotations

import math

import torch

from flash_attest.oracle import Attention


def tiled_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    alignment: str = "bottom_right",
    bias: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    dout: torch.Tensor | None = None,
    block: int = 16,
) -> Attention:
    """Compute attention in tiles of `block` keys. Other arguments are those of calls.attention.

    Forward, for each tile:
        m' = max(m, rowmax S), l' = exp(m - m') l + rowsum exp(S - m')
        o' = exp(m - m') o + exp(S - m') v
    At the end out = o / l and lse = m + ln l. Backward, for each tile:
        P = exp(S - lse), T = P (dout v^T - delta)
        dv = P^T dout, dk = scale T^T q, dq += scale T k
    """
    batch, seqlen_q, nheads, headdim = q.shape
    seqlen_k, nheads_k = k.shape[1:3]
    scale = headdim**-0.5 if softmax_scale is None else softmax_scale
    out = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    lse = torch.full((batch, nheads, seqlen_q), -math.inf, dtype=torch.float64, device=q.device)
    grads = None
    if dout is not None:
        grads = [torch.zeros(x.shape, dtype=torch.float64, device=q.device) for x in (q, k, v)]
    dbias = None
    if dout is not None and bias is not None:
        dbias = torch.zeros(bias.shape, dtype=torch.float64, device=q.device)
    offset = seqlen_k - seqlen_q if alignment == "bottom_right" else 0
    n_seen = [min(seqlen_k, max(0, i + offset + 1)) if causal else seqlen_k for i in range(seqlen_q)]
    n_seen = torch.tensor(n_seen, device=q.device).reshape(seqlen_q, 1)
    tiles = [(start, min(start + block, seqlen_k)) for start in range(0, seqlen_k, block)]

    for b in range(batch):
        for h in range(nheads):
            hk = h * nheads_k // nheads
            q_, k_, v_ = q[b, :, h].double(), k[b, :, hk].double(), v[b, :, hk].double()
            bias_ = None
            if bias is not None:
                at = (b % bias.shape[0], h % bias.shape[1])
                bias_ = bias[at].double().expand(seqlen_q, seqlen_k)

            def score_tile(start: int, stop: int, q_=q_, k_=k_, bias_=bias_) -> torch.Tensor:
                s = torch.einsum("id,jd->ij", q_ * scale, k_[start:stop])
                if bias_ is not None:
                    s = s + bias_[:, start:stop]
                hidden = torch.arange(start, stop, device=q.device) >= n_seen
                return torch.where(hidden, -math.inf, s)

            m = torch.full((seqlen_q, 1), -math.inf, dtype=torch.float64, device=q.device)
            l, o = torch.zeros_like(m), torch.zeros_like(q_)
            for start, stop in tiles:
                s = score_tile(start, stop)
                m_new = torch.maximum(m, s.max(1, keepdim=True).values)
                safe = torch.where(m_new == -math.inf, 0.0, m_new)  # no visible key yet: l and o stay 0
                e, shrink = torch.exp(s - safe), torch.exp(m - safe)
                l, o, m = l * shrink + e.sum(1, keepdim=True), o * shrink + e @ v_[start:stop], m_new
            alive = l > 0
            out[b, :, h] = torch.where(alive, o / torch.where(alive, l, 1.0), 0.0)
            lse[b, h] = torch.where(alive, m + torch.log(l), -math.inf)[:, 0]
            if grads is None:
                continue

            dq, dk, dv = grads
            do = dout[b, :, h].double()
            delta = torch.einsum("id,id->i", do, out[b, :, h])[:, None]
            for start, stop in tiles:
                s = score_tile(start, stop)
                probs = torch.where(s == -math.inf, 0.0, torch.exp(s - lse[b, h][:, None]))
                t = probs * (torch.einsum("id,jd->ij", do, v_[start:stop]) - delta)
                dv[b, start:stop, hk] += probs.T @ do
                dk[b, start:stop, hk] += scale * torch.einsum("ij,id->jd", t, q_)
                dq[b, :, h] += scale * torch.einsum("ij,jd->id", t, k_[start:stop])
                if dbias is not None:
                    dbias[at][:, start:stop] += t if bias.shape[2] == seqlen_q else t.sum(0, keepdim=True)
    return Attention(out, lse, *(grads or (None, None, None)), dbias)
