"""Attention by its definition: forward and backward in float64.

    R_ij  = softmax_scale * sum_d q_id k_jd
    S_ij  = softcap * tanh(R_ij / softcap) + bias_ij, or R_ij + bias_ij without a softcap,
            or -inf where query i does not see key j, by position or as the key is hidden
    m_i   = max(sink, max_j S_ij)                    l_i = exp(sink - m_i) + sum_j exp(S_ij - m_i)
    P_ij  = exp(S_ij - m_i) / l_i                    the sink takes the rest: P_sink,i
    out_i = sum_j P_ij v_j                           lse_i = m_i + ln l_i
    dP_ij = sum_d dout_id v_jd                       delta_i = sum_d dout_id out_id - dlse_i
    T_ij  = P_ij (dP_ij - delta_i)                   the gradient of S
    U_ij  = T_ij (1 - tanh(R_ij / softcap)^2)        the gradient of R; T without a softcap
    dq_i  = softmax_scale * sum_j U_ij k_j
    dk_j  = softmax_scale * sum_i U_ij q_i           dv_j  = sum_i P_ij dout_i
    dbias = T, summed over the dimensions along which bias is broadcast
    dsink = - sum_i P_sink,i delta_i, summed over the batch, for each query head

dlse is the gradient of the loss with respect to lse. A row that sees no key has P = 0, so out = 0
and no gradient. Its lse is the sink, or ln 0 = -inf without one; with a sink P_sink = 1, so dsink
gets dlse_i. This code is written to be read, not to be fast. It takes queries in chunks only
because S does not fit into memory at the lengths that kernels are made for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from .variant import Variant

# The number of elements of S in memory at once: 2^24 float64 are 128 MiB. The budget keeps about 17
# such matrices, some 2 GiB, besides its inputs and results, so 16 heads of 8192 x 8192 fit in 8
# GiB; twice as many with a softcap and a bias. Small cases are one chunk.
SCORES_PER_CHUNK = 2**24


@dataclass(frozen=True)
class Attention:
    """out (batch, seqlen_q, nheads, headdim_v), lse (batch, nheads, seqlen_q); gradients like the
    inputs, dsink (nheads).

    All are float64. The gradients are None without dout and dlse, dbias is None without bias, and
    dsink without sinks.
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
    """q (batch, nheads, seqlen_q, headdim), k (batch, nheads, seqlen_k, headdim), v, dout the same
    with headdim_v, float64.

    Each query head has its own copy of its key head. group: how many query heads share a key head.
    sinks (nheads, 1, 1) and dlse (batch, nheads, seqlen_q, 1): float64, or None. The bias of
    `variant` is detached.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    dout: torch.Tensor | None
    dlse: torch.Tensor | None
    sinks: torch.Tensor | None
    variant: Variant
    scale: float
    group: int

    @property
    def masked(self) -> bool:
        """Whether any score may be -inf."""
        variant = self.variant
        return variant.bias is not None or variant.hidden is not None or not variant.mask.sees_all

    def chunks(self) -> Iterator[slice]:
        """Yield slices of rows, each with at most SCORES_PER_CHUNK scores, or of one row."""
        batch, nheads, rows, _ = self.q.shape
        step = max(1, SCORES_PER_CHUNK // max(1, batch * nheads * self.k.shape[2]))
        for start in range(0, rows, step):
            yield slice(start, start + step)

    def products(self, chunk: slice) -> torch.Tensor:
        """Return R = softmax_scale * sum_d q_id k_jd (batch, nheads, i, j)."""
        return (self.q[:, :, chunk] @ self.k.mT).mul_(self.scale)

    def capped(self, products: torch.Tensor) -> torch.Tensor:
        """products (batch, nheads, i, j) -> R under the softcap, if there is one."""
        cap = self.variant.softcap
        return products if cap is None else torch.tanh(products / cap).mul_(cap)

    def slope(self, products: torch.Tensor) -> torch.Tensor | None:
        """products (batch, nheads, i, j) -> the slope of the softcap; None without one."""
        cap = self.variant.softcap
        return None if cap is None else 1 - torch.tanh(products / cap).square_()

    def mask(self, products: torch.Tensor, chunk: slice) -> torch.Tensor:
        """products (batch, nheads, i, j) -> S: capped, with bias, -inf where i does not see j."""
        s, bias, mask = self.capped(products), self.variant.bias, self.variant.mask
        if bias is not None:
            s = s + (bias[:, :, chunk] if bias.shape[2] > 1 else bias)
        if not mask.sees_all:
            seen = mask.visible(self.q.shape[2], self.k.shape[2], chunk, device=s.device)
            s = s.masked_fill(~seen, -math.inf)
        if self.variant.hidden is not None:
            s = s.masked_fill(self.variant.hidden[:, :, chunk], -math.inf)
        return s

    def zeros_like_out(self) -> torch.Tensor:
        """Return zeros (batch, nheads, seqlen_q, headdim_v), stored in the order of the result."""
        batch, nheads, seqlen_q = self.q.shape[:3]
        return self.q.new_zeros(batch, seqlen_q, nheads, self.v.shape[3]).transpose(1, 2)

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
    """Return the Operands of tensors of any dtype, in the shapes of `attention`.

    With dlse alone, dout is 0.
    """
    nheads, nheads_k, sinks = q.shape[2], k.shape[2], variant.sinks
    if sinks is not None and len(sinks) != nheads:
        raise ValueError(f"sinks has shape {tuple(sinks.shape)}, should be (nheads) = ({nheads},)")
    if nheads_k == 0 or nheads % nheads_k:
        raise ValueError(f"nheads_k={nheads_k} should divide nheads={nheads}")
    group = nheads // nheads_k

    def heads_first(x: torch.Tensor) -> torch.Tensor:
        return x.detach().transpose(1, 2).double()

    if dlse is not None and dout is None:
        dout = q.new_zeros(*q.shape[:3], v.shape[3])
    k, v = heads_first(k), heads_first(v)
    if group > 1:  # query head h reads key head h // group
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return Operands(
        q=heads_first(q),
        k=k,
        v=v,
        dout=None if dout is None else heads_first(dout),
        dlse=None if dlse is None else dlse.detach().double().unsqueeze(-1),
        sinks=None if sinks is None else sinks.detach().double()[:, None, None].to(q.device),
        variant=variant if variant.bias is None else replace(variant, bias=variant.bias.detach()),
        scale=variant.scale(q.shape[3]),
        group=group,
    )


def softmax(s: torch.Tensor, sinks: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """s (..., j), sinks (..., 1, 1) -> P (..., j), m (..., 1), lse (..., 1).

    m is 0 in rows that see neither a key nor a sink.
    """
    m = s.amax(-1, keepdim=True) if s.shape[-1] else s.new_full((*s.shape[:-1], 1), -math.inf)
    if sinks is not None:
        m = torch.maximum(m, sinks)
    m = m.masked_fill(m == -math.inf, 0.0)  # otherwise -inf - -inf below would be NaN
    e = torch.exp(s - m)
    l = e.sum(-1, keepdim=True)
    if sinks is not None:
        l += torch.exp(sinks - m)
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
    """q (batch, seqlen_q, nheads, headdim), k (batch, seqlen_k, nheads_k, headdim), v (batch,
    seqlen_k, nheads_k, headdim_v) -> Attention, in float64.

    dout (batch, seqlen_q, nheads, headdim_v), dlse (batch, nheads, seqlen_q): the gradients of the
    loss with respect to out and lse. With dlse alone, dout is 0. Raises ValueError unless nheads_k
    divides nheads, and there are as many sinks as query heads.
    """
    p, bias = operands(q, k, v, variant, dout, dlse), variant.bias
    backward = p.dout is not None
    out, lse = p.zeros_like_out(), p.q.new_zeros(p.q.shape[:3])
    dq, dk, dv = (torch.zeros_like(x) if backward else None for x in (p.q, p.k, p.v))
    dbias = torch.zeros_like(bias, dtype=torch.float64) if backward and bias is not None else None
    dsink = p.q.new_zeros(p.q.shape[1]) if backward and p.sinks is not None else None
    for chunk in p.chunks():
        r = p.products(chunk)
        probs, _, row_lse = softmax(p.mask(r, chunk), p.sinks)
        out[:, :, chunk] = o = probs @ p.v
        lse[:, :, chunk] = row_lse.squeeze(-1)
        if not backward:
            continue
        dout_rows = p.dout[:, :, chunk]
        delta = (dout_rows * o).sum(-1, keepdim=True)
        if p.dlse is not None:
            delta -= p.dlse[:, :, chunk]
        t = probs * (dout_rows @ p.v.mT - delta)
        dv += probs.mT @ dout_rows
        if dbias is not None:
            dbias[:, :, chunk if bias.shape[2] > 1 else slice(None)] += sum_broadcast(t, bias)
        if dsink is not None:
            dsink -= (sink_weight(p.sinks, row_lse) * delta).sum((0, 2, 3))
        slope = p.slope(r)
        u = t if slope is None else t.mul_(slope)
        dq[:, :, chunk] = p.scale * (u @ p.k)
        dk += p.scale * (u.mT @ p.q[:, :, chunk])

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


def sink_weight(sinks: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    """sinks (nheads, 1, 1), lse (batch, nheads, i, 1) -> P_sink, like lse; 0 without a sink."""
    return torch.exp(sinks - lse.masked_fill(lse == -math.inf, 0.0))


def row_maximum(q: torch.Tensor, k: torch.Tensor, variant: Variant) -> torch.Tensor:
    """q (batch, seqlen_q, nheads, headdim), k (batch, seqlen_k, nheads_k, headdim) -> m (batch,
    nheads, seqlen_q), float64.

    m_i = max(sink, max_j S_ij), or 0 in rows that see neither a key nor a sink.
    """
    p = operands(q, k, k, variant)
    m = p.q.new_zeros(p.q.shape[:3])
    for chunk in p.chunks():
        m[:, :, chunk] = softmax(p.mask(p.products(chunk), chunk), p.sinks)[1].squeeze(-1)
    return m
