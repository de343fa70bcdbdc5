"""Correct attention that rounds as a `Precision` declares: float32 with these roundings added.

Each rounding is made as real kernels make it. If kernels differ, it is made in the worst way. Sums
of a tile in a half dtype are rounded after each key, and parts are merged by the weights
exp(lse_part - lse) of FlashAttention's split-KV kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch

from flash_attest.impls import Implementation, Precision, Supports
from flash_attest.impls.contract.arguments import check_bias, check_dtypes, sizes_of

INF = float("inf")
TILE = 32  # keys
PARTS = 3  # of the keys, where they are merged by lse


@dataclass(frozen=True)
class Made:
    """The way in which a kernel makes its roundings, where one `Precision` allows several.

    late: m is rounded after P was computed from it, not before.
    stepwise: l = alpha l + sum P rounds alpha, the sum, the product and the result.
    tile: the number of keys of a tile. last_first: whether the last tile comes first.
    """

    late: bool = False
    stepwise: bool = False
    tile: int = TILE
    last_first: bool = False


USUAL = Made()


def kernel(
    precision: Precision, made: Made = USUAL, *, name: str = "rounding", backward: bool = True, **declared
) -> Implementation:
    """Return an implementation that rounds as `precision` says, and declares support for
    everything.

    `multiply` must not be "tf32".
    """

    def forward(q, k, v, *, causal=False, bias=None, softmax_scale=None):
        check_bias(bias, q, sizes_of(q, k, v).scores)
        check_dtypes(q, k, v, everything.dtypes)
        s, _, _ = _scores(precision, precision.scaled, q, k, causal, bias, softmax_scale)
        out, lse = _forward(precision, made, s, _heads(v, q.shape[2]), q.dtype)
        return out.transpose(1, 2).to(q.dtype), lse.squeeze(-1)

    def gradients(dout, q, k, v, out, lse, *, causal=False, bias=None, softmax_scale=None):
        return _backward(precision, dout, q, k, v, out, lse, causal, bias, softmax_scale)

    everything = Supports(
        dtypes={torch.float32, torch.float16, torch.bfloat16},
        headdims=range(1, 257),
        causal="optional",
        bias={"vector", "matrix"},
        bias_grad=backward,
        cross=True,
        gqa=True,
        softmax_scale=True,
        strides=True,
    )
    return Implementation(
        name=name,
        forward=forward,
        backward=gradients if backward else None,
        lse="natural",
        supports=everything,
        precision=precision,
        **declared,
    )


def _stored(x, dtype):
    """Round sums to a dtype. float16 does not overflow, as in a kernel that scales large sums by a
    power of two.
    """
    return torch.where(x.abs() > 2**15, (x * 2**-8).to(dtype).float() * 2**8, x.to(dtype).float())


def _heads(x: torch.Tensor, nheads: int) -> torch.Tensor:
    """Turn (b, sk, hk, d) into (b, h, sk, d), float32."""
    return x.transpose(1, 2).float().repeat_interleave(nheads // x.shape[2], 1)


def _scores(precision, scaled, q, k, causal, bias, softmax_scale):
    """Return S (b, h, i, j) float32, -inf where hidden, and q, k (b, h, n, d) for the gradients.

    If q and k do not contain softmax_scale, S still has to be multiplied by it: S = factor q k.
    """
    dtype, scale = q.dtype, q.shape[3] ** -0.5 if softmax_scale is None else softmax_scale
    root = math.sqrt(abs(scale))
    of_q, of_k = {
        "scores": (1.0, 1.0),
        "q": (scale, 1.0),
        "k": (1.0, scale),
        "both": (math.copysign(root, scale), root),
    }[scaled]
    seqlen_q, seqlen_k = q.shape[1], k.shape[1]
    x, y = (q.float() * of_q).to(dtype).float(), (k.float() * of_k).to(dtype).float()
    if precision.quantize != "none":
        x, y = _quantized(precision, x), _quantized(precision, y)
    x, y = x.transpose(1, 2), _heads(y, q.shape[2])
    rounded = (lambda t: t.to(dtype).float()) if precision.scores == "operand" else lambda t: t
    s = _times(precision, x, y.mT)
    if scaled == "scores":
        s = s * scale
    s = rounded(s)  # after the scale, as q k may overflow in float16
    if bias is not None:
        s = rounded(s + bias.float())
    if causal:
        i, j = torch.arange(seqlen_q)[:, None], torch.arange(seqlen_k)
        s = s.masked_fill(j > i + seqlen_k - seqlen_q, -INF)
    return s, x, y


def _quantized(precision, x):
    """Return x (b, n, h, d) rounded to int8 or fp8.

    One scale serves the whole tensor, a head, or 32 rows of a head.
    """
    if not x.numel():
        return x
    if precision.quantize_by == "block":
        return torch.cat(
            [_cast(precision, rows, rows.abs().amax((1, 3), keepdim=True)) for rows in x.split(TILE, 1)], 1
        )
    over = (0, 1, 2, 3) if precision.quantize_by == "tensor" else (1, 3)
    return _cast(precision, x, x.abs().amax(over, keepdim=True))


def _cast(precision, x, largest):
    largest = largest.masked_fill(largest == 0, 1.0)
    if precision.quantize == "int8":
        step = largest / 127
        return (x / step).round().clamp(-127, 127) * step
    step = largest / 448
    return (x / step).to(torch.float8_e4m3fn).float() * step


def _cut(x):
    """Cut off the last 13 bits, as the matrix unit does for tf32."""
    return (x.contiguous().view(torch.int32) & -0x2000).view(torch.float32)


def _times(precision, a, b):
    """Return a b, multiplied in the precision that `multiply` names."""
    if precision.multiply == "operand":
        return a @ b
    high_a, high_b = _cut(a), _cut(b)
    if precision.multiply == "tf32_cut":
        return high_a @ high_b
    return high_a @ high_b + (high_a @ _cut(b - high_b) + _cut(a - high_a) @ high_b)


def _narrow(precision, x, *, dtype):
    return x.to(dtype).float() if precision.statistics == "operand" else x


def _exp(precision, x):
    """Return exp. If its error is declared, it is 2^n times a polynomial, as in FlashAttention-4.

    The polynomial in the fraction is cubic, with an error of at most 1e-4. If a larger error is
    declared, the rest is an error of all results in one direction.
    """
    if not precision.exp:
        return torch.exp(x)
    x = (x * 1.4426950408889634).clamp(min=-127.0)
    n = x.floor()
    f = x - n
    p = (((0.0771 * f + 0.2276) * f + 0.6951) * f + 1.0) * (1.0 + max(0.0, precision.exp - 1e-4))
    return torch.where(x <= -127.0, 0.0, torch.ldexp(p, n))


def _forward(precision, made, s, v, dtype):
    """Return out (b, h, i, d), lse (b, h, i, 1), float32, for S (b, h, i, j) and v (b, h, j, d)."""
    seqlen_k = s.shape[3]
    size = -(-seqlen_k // PARTS) if precision.merge == "lse" else seqlen_k
    parts = [slice(n, n + size) for n in range(0, seqlen_k, max(size, 1))]
    if not parts:
        return s.new_zeros(*s.shape[:3], v.shape[3]), s.new_full((*s.shape[:3], 1), -INF)
    results = [_part(precision, made, s[..., keys], v[:, :, keys], dtype) for keys in parts]
    if precision.merge != "lse":
        return results[0]
    if precision.parts == "operand":
        results = [(out.to(dtype).float(), lse) for out, lse in results]
    lses = torch.cat([lse for _, lse in results], -1)
    m = lses.amax(-1, keepdim=True)
    safe = m.masked_fill(m == -INF, 0.0)
    lse = _narrow(precision, torch.log(torch.exp(lses - safe).sum(-1, keepdim=True)) + safe, dtype=dtype)
    weights = torch.exp(lses - lse.masked_fill(lse == -INF, 0.0))
    return sum(weights[..., n : n + 1] * out for n, (out, _) in enumerate(results)), lse


def _part(precision, made, s, v, dtype):
    """Compute one part of the keys, tile by tile, with a running maximum and sum."""
    tile = precision.tile_sum or made.tile
    m = s.new_full((*s.shape[:3], 1), -INF)
    l, acc = torch.zeros_like(m), s.new_zeros(*s.shape[:3], v.shape[3])
    starts = range(0, s.shape[3], tile)
    narrow = partial(_narrow, precision, dtype=dtype)
    step = narrow if made.stepwise else lambda x: x
    acc_step = partial(_stored, dtype=dtype) if precision.accumulate == "operand" else lambda x: x
    for n in reversed(starts) if made.last_first else starts:
        s_tile, v_tile = s[..., n : n + tile], v[:, :, n : n + tile]
        m_new = torch.maximum(m, s_tile.amax(-1, keepdim=True))
        m_new = m_new if made.late else narrow(m_new)
        safe = m_new.masked_fill(m_new == -INF, 0.0)
        p, alpha = _exp(precision, s_tile - safe), step(torch.exp(m - safe))
        summed = p.to(dtype).float() if precision.row_sum == "operand" else p
        l = narrow(step(alpha * l) + step(summed.sum(-1, keepdim=True)))
        acc = acc_step(acc_step(alpha * acc) + acc_step(_product(precision, p, v_tile, dtype)))
        m = narrow(m_new)
    lse = narrow(m + torch.log(l))
    return torch.where(l == 0, 0.0, acc / l), lse


def _product(precision, p, v, dtype):
    p = p if precision.probabilities == "float32" else p.to(dtype).float()
    if precision.tile_sum is None:
        return _times(precision, p, v)
    acc = p.new_zeros(*p.shape[:3], v.shape[3])
    for j in range(v.shape[2]):
        acc = _stored(acc + p[..., j : j + 1] * v[:, :, j : j + 1], dtype)
    return acc


def _sum(precision, dtype, a, b, factor):
    """Return factor a b. Its sum goes from tile to tile in `dtype`, or is one sum in float32."""
    if (precision.accumulate_in_backward or precision.accumulate) == "float32":
        return factor * _times(precision, a, b)
    acc = a.new_zeros(*a.shape[:3], b.shape[3])
    for n in range(0, b.shape[2], TILE):
        tile = factor * _times(precision, a[..., n : n + TILE], b[:, :, n : n + TILE])
        acc = _stored(acc + _stored(tile, dtype), dtype)
    return acc


def _backward(precision, dout, q, k, v, out, lse, causal, bias, softmax_scale):
    dtype, nheads, nheads_k = q.dtype, q.shape[2], k.shape[2]
    scaled = precision.scaled_in_backward or precision.scaled
    s, x, y = _scores(precision, scaled, q, k, causal, bias, softmax_scale)
    scale = q.shape[3] ** -0.5 if softmax_scale is None else softmax_scale
    if precision.quantize != "none":
        x, y = q.transpose(1, 2).float(), _heads(k, nheads)
    lse = lse.unsqueeze(-1)
    p = _exp(precision, s - lse.masked_fill(lse == -INF, INF))
    do, vh = dout.transpose(1, 2).float(), _heads(v, nheads)
    delta = (do * out.transpose(1, 2).float()).sum(-1, keepdim=True)
    times = partial(_times, precision)
    dp = times(do, vh.mT)
    if precision.scores == "operand":  # autograd keeps P itself, not lse
        p, dp = torch.softmax(s, -1).nan_to_num(0.0), dp.to(dtype).float()
        delta = (p * dp).sum(-1, keepdim=True)
    ds = p * (dp - delta)
    cast = (lambda t: t) if precision.probabilities == "float32" else (lambda t: t.to(dtype).float())
    # If x and y already contain softmax_scale, the result is not multiplied by it again.
    root = math.sqrt(abs(scale))
    factors = {
        "scores": (scale, scale),
        "q": (scale, 1.0),
        "k": (1.0, scale),
        "both": (math.copysign(root, scale), root),
    }
    sums = partial(_sum, precision, dtype)
    of_dq, of_dk = factors["scores"] if precision.quantize != "none" else factors[scaled]
    dq = sums(cast(ds), y, of_dq)
    dk = sums(cast(ds).mT, x, of_dk)
    dv = sums(cast(p).mT, do, 1.0)

    def heads_last(t, heads):
        return t.unflatten(1, (heads, -1)).sum(2).transpose(1, 2).to(dtype)

    grads = heads_last(dq, nheads), heads_last(dk, nheads_k), heads_last(dv, nheads_k)
    if bias is None:
        return grads
    over = [n for n in range(3) if bias.shape[n] == 1 and ds.shape[n] != 1]
    return *grads, (ds.sum(over, keepdim=True) if over else ds).to(bias.dtype)
