"""Attention by its definition: forward and backward in float64.

    R_ij  = softmax_scale * sum_d q_id k_jd
    S_ij  = softcap tanh(R_ij / softcap) + bias_ij, or -inf where query i does not see key j
    m_i   = max(max_j S_ij, sink)                    l_i = exp(sink - m_i) + sum_j exp(S_ij - m_i)
    P_ij  = exp(S_ij - m_i) / l_i                    P_sink,i = exp(sink - m_i) / l_i
    out_i = sum_j P_ij v_j                           lse_i = m_i + ln l_i
    dP_ij = sum_d dout_id v_jd                       delta_i = sum_d dout_id out_id - dlse_i
    T_ij  = P_ij (dP_ij - delta_i)                   the gradient of S
    U_ij  = T_ij (1 - tanh(R_ij / softcap)^2)        the gradient of R
    dq_i  = softmax_scale * sum_j U_ij k_j
    dk_j  = softmax_scale * sum_i U_ij q_i           dv_j  = sum_i P_ij dout_i
    dbias = T, summed over the dimensions along which bias is broadcast
    dsink = - sum_i P_sink,i delta_i, summed over the batch

Without a softcap S = R + bias and U = T. Without sinks, sink = -inf. dlse is the gradient of the
loss with respect to lse, 0 if it does not depend on lse (FlashAttention-2, section 3.1, has plain
attention; the cap is that of Gemma 2, the sink that of gpt-oss).

A row that sees no key has P = 0, so out = 0, lse = sink and no gradient but dsink. This code is
written to be read, not to be fast. It takes queries in chunks only because S does not fit into
memory at the lengths that kernels are made for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from .variant import Variant

# The number of elements of S in memory at once: 2^24 float64 are 128 MiB. The budget keeps about 15
# such matrices, some 2 GiB, besides its inputs and results, so 16 heads of 8192 x 8192 fit in 8
# GiB. Small cases are one chunk.
SCORES_PER_CHUNK = 2**24


@dataclass(frozen=True)
class Attention:
    """out (batch, seqlen_q, nheads, headdim_v), lse (batch, nheads, seqlen_q), and the gradients.

    These have the shapes of q, k, v, bias and sinks. All are float64. The gradients are None
    without dout and dlse, dbias is None without bias, and dsink without sinks.
    """

    out: torch.Tensor
    lse: torch.Tensor
    dq: torch.Tensor | None = None
    dk: torch.Tensor | None = None
    dv: torch.Tensor | None = None
    dbias: torch.Tensor | None = None
    dsink: torch.Tensor | None = None


@dataclass(frozen=True)
class Operands:
    """q (batch, nheads, seqlen_q, headdim), k (batch, nheads, seqlen_k, headdim), dout and v the
    same with headdim_v, dlse (batch, nheads, seqlen_q, 1), sinks (nheads, 1, 1), all float64.

    Each query head has its own copy of its key head. group: how many query heads share a key head.
    The bias of `variant` is detached. dout and dlse are None if no gradient is wanted; dlse is also
    None if the loss does not depend on lse.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    dout: torch.Tensor | None
    variant: Variant
    scale: float
    group: int
    dlse: torch.Tensor | None = None
    sinks: torch.Tensor | None = None

    @property
    def masked(self) -> bool:
        """Whether any score may be -inf."""
        return self.variant.bias is not None or not self.variant.mask.sees_all

    def chunks(self) -> Iterator[slice]:
        """Yield slices of rows, each with at most SCORES_PER_CHUNK scores, or of one row."""
        batch, nheads, rows, _ = self.q.shape
        step = max(1, SCORES_PER_CHUNK // max(1, batch * nheads * self.k.shape[2]))
        for start in range(0, rows, step):
            yield slice(start, start + step)

    def products(self, chunk: slice) -> torch.Tensor:
        """Return softmax_scale * sum_d q_id k_jd (batch, nheads, i, j), before bias and mask."""
        return (self.q[:, :, chunk] @ self.k.mT).mul_(self.scale)

    def mask(self, products: torch.Tensor, chunk: slice) -> torch.Tensor:
        """products (batch, nheads, i, j) -> S: capped, with bias, -inf where i does not see j."""
        s, bias, mask = products, self.variant.bias, self.variant.mask
        if self.variant.softcap is not None:
            s = self.variant.softcap * torch.tanh(s / self.variant.softcap)
        if bias is not None:
            s = s + (bias[:, :, chunk] if bias.shape[2] > 1 else bias)
        if not mask.sees_all:
            seen = mask.visible(self.q.shape[2], self.k.shape[2], chunk, device=s.device)
            s = s.masked_fill(~seen, -math.inf)
        return s

    def delta(self, chunk: slice, out: torch.Tensor) -> torch.Tensor:
        """out (batch, nheads, i, headdim_v) -> delta (batch, nheads, i, 1)."""
        delta = (self.dout[:, :, chunk] * out).sum(-1, keepdim=True)
        return delta if self.dlse is None else delta - self.dlse[:, :, chunk]

    def uncapped(self, t: torch.Tensor, products: torch.Tensor) -> torch.Tensor:
        """t, products (batch, nheads, i, j) -> the gradient of the products, from that of S."""
        if self.variant.softcap is None:
            return t
        return t * (1 - torch.tanh(products / self.variant.softcap) ** 2)

    def sum_group(self, x: torch.Tensor) -> torch.Tensor:
        """x (batch, nheads, ...) -> (batch, nheads_k, ...), summed over the heads of a group."""
        return x if self.group == 1 else x.unflatten(1, (-1, self.group)).sum(2)


def operands(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    variant: Variant,
    dout: torch.Tensor | None = None,
    dlse: torch.Tensor | None = None,
) -> Operands:
    """q (batch, seqlen_q, nheads, headdim), k (batch, seqlen_k, nheads_k, headdim), dout and v the
    same with headdim_v, dlse (batch, nheads, seqlen_q), of any dtype -> Operands.
    """
    nheads, nheads_k = q.shape[2], k.shape[2]
    if nheads_k == 0 or nheads % nheads_k:
        raise ValueError(f"nheads_k={nheads_k} should divide nheads={nheads}")
    group = nheads // nheads_k

    def heads_first(x: torch.Tensor) -> torch.Tensor:
        return x.detach().transpose(1, 2).double()

    k, v = heads_first(k), heads_first(v)
    if group > 1:  # query head h reads key head h // group
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return Operands(
        q=heads_first(q),
        k=k,
        v=v,
        dout=None if dout is None else heads_first(dout),
        dlse=None if dlse is None else dlse.detach().double().unsqueeze(-1),
        sinks=None if variant.sinks is None else variant.sinks.detach().double()[:, None, None],
        variant=variant if variant.bias is None else replace(variant, bias=variant.bias.detach()),
        scale=variant.scale(q.shape[3]),
        group=group,
    )


def softmax(s: torch.Tensor, sinks: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """s (..., j), sinks (..., 1, 1) -> P (..., j), m (..., 1), lse (..., 1).

    m is 0 in rows with neither a key nor a sink.
    """
    m = s.amax(-1, keepdim=True) if s.shape[-1] else s.new_full((*s.shape[:-1], 1), -math.inf)
    if sinks is not None:
        m = torch.maximum(m, sinks)
    m = m.masked_fill(m == -math.inf, 0.0)  # otherwise -inf - -inf below would be NaN
    e = torch.exp(s - m)
    l = e.sum(-1, keepdim=True)
    if sinks is not None:
        l = l + torch.exp(sinks - m)
    return e / l.masked_fill(l == 0, 1.0), m, m + torch.log(l)


def sum_broadcast(t: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """t (batch, nheads, i, j) -> t, summed over the broadcast dimensions of bias.

    bias is (batch | 1, nheads | 1, i | 1, j).
    """
    over = [n for n in range(3) if bias.shape[n] == 1 and t.shape[n] != 1]
    return t.sum(over, keepdim=True) if over else t


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    variant: Variant,
    *,
    dout: torch.Tensor | None = None,
    dlse: torch.Tensor | None = None,
) -> Attention:
    """q (batch, seqlen_q, nheads, headdim), k (batch, seqlen_k, nheads_k, headdim), dout and v the
    same with headdim_v, dlse (batch, nheads, seqlen_q) -> Attention, in float64.

    Gradients are computed if dout is given; dlse without dout has none.

    Raises ValueError unless nheads_k divides nheads.
    """
    p, bias, sinks = operands(q, k, v, variant, dout, dlse), variant.bias, variant.sinks
    backward = dout is not None
    out, lse = p.q.new_zeros(*p.q.shape[:3], p.v.shape[3]), p.q.new_zeros(p.q.shape[:3])
    dq, dk, dv = (torch.zeros_like(x) if backward else None for x in (p.q, p.k, p.v))
    dbias = torch.zeros_like(bias, dtype=torch.float64) if backward and bias is not None else None
    dsink = p.q.new_zeros(sinks.shape) if backward and sinks is not None else None
    for chunk in p.chunks():
        products = p.products(chunk)
        probs, _, row_lse = softmax(p.mask(products, chunk), p.sinks)
        out[:, :, chunk] = o = probs @ p.v
        lse[:, :, chunk] = row_lse.squeeze(-1)
        if not backward:
            continue
        dout_rows = p.dout[:, :, chunk]
        delta = p.delta(chunk, o)
        t = probs * (dout_rows @ p.v.mT - delta)
        u = p.uncapped(t, products)
        dq[:, :, chunk] = p.scale * (u @ p.k)
        dk += p.scale * (u.mT @ p.q[:, :, chunk])
        dv += probs.mT @ dout_rows
        if dsink is not None:
            # Without a key, lse is the sink; without a sink, its share is 0.
            share = torch.exp(p.sinks - row_lse).masked_fill(p.sinks == -math.inf, 0.0)
            dsink -= (share * delta).sum((0, 2, 3))
        if dbias is not None:
            dbias[:, :, chunk if bias.shape[2] > 1 else slice(None)] += sum_broadcast(t, bias)

    def heads_last(x: torch.Tensor | None) -> torch.Tensor | None:
        return None if x is None else x.transpose(1, 2)

    return Attention(
        out=heads_last(out),
        lse=lse,
        dq=heads_last(dq),
        dk=heads_last(p.sum_group(dk)) if backward else None,
        dv=heads_last(p.sum_group(dv)) if backward else None,
        dbias=dbias,
        dsink=dsink,
    )


def row_maximum(q: torch.Tensor, k: torch.Tensor, variant: Variant) -> torch.Tensor:
    """q (batch, seqlen_q, nheads, headdim), k (batch, seqlen_k, nheads_k, headdim) -> m (batch,
    nheads, seqlen_q), float64.

    m_i = max(max_j S_ij, sink), or 0 in rows with neither a key nor a sink.
    """
    p = operands(q, k, k, variant)
    m = p.q.new_zeros(p.q.shape[:3])
    for chunk in p.chunks():
        m[:, :, chunk] = softmax(p.mask(p.products(chunk), chunk), p.sinks)[1].squeeze(-1)
    return m
