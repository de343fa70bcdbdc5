"""The noise that a declared precision adds.

    scaled       E_s   += unit(u) size(scale q k), for each of q and k that is scaled and rounded to
                          its dtype
                          + unit(tiny) sum_d size(k) for q, and size(q) for k: they may be subnormal
    scores       E_s   += (2 size(scale q k) + size(S)) unit(u) + (1 + size(scale)) unit(tiny)
                 E_dP  += size(dP) unit(u) + unit(tiny)          E_delta += sum_j size(P) of this
                          q k is rounded, its product with the scale, and the sum with the bias;
                          delta may be sum_j P dP.
    quantize     E_s   += |scale| sum_d (|k| e_q + |q| e_k + e_q e_k)          in the linear form
                          int8: e_q = max |q| / 254, half a step
                          fp8 (e4m3): e_q = max(2^-4 |q|, 2^-10 max |q| / 448)
                          The maximum is of the tensor, or of its head. (The maximum of a block is
                          no larger than its head's.)
    tile_sum     E_out += total_n of each tile, n = tile_sum, in the operands' dtype, and
                          size(sum_j L v), with L = P where P is below u times the tile's sum
                          (independent form; noise_forward.py says why)
    statistics   E_lse += size(lse) unit(u) + 3 tiles unit(u)           E_row += 3 tiles unit(u)
                 E_s   += unit(u) sum |m| over the rises of m from the key's tile on, in the forward
                          lse is stored rounded. l is rounded up to three times in each tile, of 16
                          keys or more: in alpha l + sum P, alpha = exp(m - m') or the sum, the
                          product, and the result.
                          If P is computed from an m that is rounded already, m adds nothing, as
                          the terms divided by l, and those added to log l, are relative to it.
                          But m may be rounded after P was computed. Then alpha, which is relative
                          to the rounded m, gives all earlier keys a weight that is wrong by
                          exp(rounded m - m), each time that m has risen. Larger tiles have fewer
                          rises. With a single tile only lse has this error:
                          E_lse += size(m) unit(u).
    row_sum      E_s   += unit(u_p) in the forward, instead of size(P v) unit(u_p) in E_out
                 E_lse += seqlen_k unit(tiny_p)                  E_row += seqlen_k unit(tiny_p)
                          P is cast before l sums it, so the cast changes the weights.
    exp          E_s   += unit(exp)                                     E_lse += size(exp)
                          exp is a polynomial in the fraction of the exponent. The mean of its error
                          is the same in P and l, so it cancels in out. It does not cancel in lse
                          and in P of the backward, where all rows share it (`shared` of Lse).
    merge        E_lse += size(lse) steps(1) + steps(4)
                 E_row += (size(lse) + 1) steps(2) + steps(4)
                          A part's weight exp(lse_part - lse) inherits the roundings of both. The
                          lse of a part may be larger, but then its weight is small: w |ln w| < 1.
                 If both are rounded to a half dtype, the weights of the parts are wrong by
                 exp(E_s) - 1 with E_s = (size(lse) + 1) unit(u), and so is their sum, E_row.
    parts        E_out += unit(u_out) larger(out, sum_j size(P v)) + unit(tiny_out)
                          The out of a part times its weight is a partial sum of P v. The weights
                          add up to 1, so subnormal parts add no more than one of them.

E_row is the relative noise of everything that a part contributes to its row. E_out gets
E_row larger(out, sum_j size(P v)), and E_delta, which a row shares, gets
E_row larger(delta, sum_j size(P dP)).

An element of q is rounded once for all keys, so the form is linear if q and k are rounded to less
than float32 (budget.py). The bound D on the error of an exponent may then be so large that
exp(D) - 1 is not close to D:

    out, delta   E_s is replaced by (exp(D) - 1) / sum_j P exp(-D), as
                 out' - out = sum_j P (e^d - 1) (v - out) / sum_j P e^d
    lse          sum_j P E_s is replaced by ln sum_j P exp(D)
    backward     P = exp(S - lse): E_s is replaced by (exp(D) - 1) exp(E_lse), and E_lse by
                 exp(E_lse) - 1. Errors of dP and delta are multiplied by a larger P, so size(P)
                 (E_s + E_lse) (E_dP + E_delta) is added to E_T.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

from .attention import Operands
from .rounding import FP8, INT8_STEPS, Accumulator, Units

if TYPE_CHECKING:
    from .sinks import SinkScores

SMALLEST_TILE = 16  # keys of one instruction of a matrix unit
# An update of l in a half dtype rounds up to three times: exp(m - m') or the sum of the tile, their
# product, and the sum.
UPDATE = 3
# exp(300) is 10^130, which float64 can still square. With a larger error, a score says nothing.
LARGEST_EXPONENT = 300.0


def of_scores(p: Operands, chunk: slice, form: type, un: Units, qk: torch.Tensor, scaled: str) -> torch.Tensor | None:
    """Return the part of E_s that scaled or quantised q and k add; None if they are neither.

    qk = sum_d size(scale q k). scaled: what the scale multiplies, in the forward or the backward.
    """
    noise = None
    if scaled != "scores":
        both = scaled == "both"
        noise = qk * (form.unit(un.u) * (2 if both else 1))
        tiny = form.unit(un.tiny) * (form.size(math.sqrt(abs(p.scale))) if both else 1.0)
        if scaled != "k":
            noise += tiny * form.size(p.k).sum(-1).unsqueeze(-2)
        if scaled != "q":
            noise += tiny * form.size(p.q[:, :, chunk]).sum(-1, keepdim=True)
    if un.quantize != "none":
        q, k = p.q[:, :, chunk].abs(), p.k.abs()
        e_q, e_k = _step(q, p.q, un), _step(k, p.k, un)
        of_both = abs(p.scale) * ((q + e_q) @ e_k.expand_as(k).mT + e_q.expand_as(q) @ k.mT)
        noise = of_both if noise is None else noise + of_both
    return noise


def _step(x: torch.Tensor, whole: torch.Tensor, un: Units) -> torch.Tensor:
    """|x|, whole (batch, nheads, i, headdim) -> the largest error of x, scaled by max |whole|."""
    if not whole.numel():
        return x
    largest = whole.abs().amax() if un.quantize_by == "tensor" else whole.abs().amax((-2, -1), keepdim=True)
    if un.quantize == "int8":
        return (largest / INT8_STEPS).expand_as(x)
    return torch.maximum(x * FP8.u, FP8.tiny * largest)


class Rows(NamedTuple):
    """The noise of rows, (batch, nheads, i, 1) or 0.0: E_row (see above), of lse, and of S."""

    e_row: torch.Tensor | float
    e_lse: torch.Tensor | float
    e_s: torch.Tensor | float


def of_rows(lse: torch.Tensor, m: torch.Tensor, seqlen_k: int, sink: SinkScores | None, form: type, un: Units) -> Rows:
    """lse, m (batch, nheads, i, 1), finite -> the noise of merging and of narrow statistics."""
    e_row = e_lse = e_s = 0.0
    if un.merged:
        e_row = (form.size(lse) + 1.0) * form.steps(2) + form.steps(4)
        if sink is not None:  # a part of its own, next to which all keys may have a small weight
            e_row = e_row + form.size(sink.lse_of_keys) * form.steps(2)
        e_lse = form.size(lse) * form.steps(1) + form.steps(4)
    if un.narrow:
        tiles = -(-seqlen_k // SMALLEST_TILE) + (sink is not None)
        of_l = tiles * UPDATE * form.unit(un.u)
        if un.merged:
            e_s = (form.size(lse) + 1.0) * form.unit(un.u)
            e_row += grown(e_s)
        e_row, e_lse = e_row + of_l, e_lse + form.size(lse) * form.unit(un.u) + of_l
        if tiles == 1:  # with more tiles, of_maximum has this error
            e_lse += form.size(m) * form.unit(un.u)
    if un.cast_sum:
        of_underflow = seqlen_k * form.unit(un.tiny_p)
        e_row, e_lse = e_row + of_underflow, e_lse + of_underflow
    return Rows(e_row, e_lse, e_s)


class Rises(NamedTuple):
    """The part of E_s, and of E_sink, from an m that is rounded late; None if there is none."""

    keys: torch.Tensor | None
    sink: torch.Tensor | None


NO_RISES = Rises(None, None)


def of_maximum(s: torch.Tensor, sinks: torch.Tensor | None, un: Units) -> Rises:
    """s (batch, nheads, i, j), -inf where hidden, sinks (nheads, 1, 1) -> Rises.

    This is the linear form, as statistics in a half dtype always take it. None for a single tile.
    The sink counts as a tile, before or after the others.
    """
    seqlen_k = s.shape[-1]
    if not seqlen_k or (seqlen_k <= SMALLEST_TILE and sinks is None):
        return NO_RISES
    padded = torch.nn.functional.pad(s, (0, -seqlen_k % SMALLEST_TILE), value=-math.inf)
    largest = padded.unflatten(-1, (-1, SMALLEST_TILE)).amax(-1)  # of each tile
    of_sink = None
    if sinks is None:
        of_tiles = _in_both_orders(largest)
    else:
        sink = sinks.expand(*largest.shape[:-1], 1)
        before, after = (_in_both_orders(torch.cat(x, -1)) for x in ((sink, largest), (largest, sink)))
        of_tiles = torch.maximum(before[..., 1:], after[..., :-1])
        of_sink = torch.maximum(before[..., :1], after[..., -1:]) * un.u
    return Rises((of_tiles * un.u).repeat_interleave(SMALLEST_TILE, -1)[..., :seqlen_k], of_sink)


def _in_both_orders(largest: torch.Tensor) -> torch.Tensor:
    """largest (..., tiles) -> the larger sum of rises of each tile, from either end."""
    return torch.maximum(_risen(largest), _risen(largest.flip(-1)).flip(-1))


def _risen(largest: torch.Tensor) -> torch.Tensor:
    """largest (..., tiles) -> for each tile, the sum of |m| over the rises of m from there on.

    The first rise may be in the same tile, or before it in a larger one, so it counts as the larger
    of this maximum and the last one.
    """
    sizes = largest.abs().masked_fill(largest == -math.inf, 0.0)
    last = largest.amax(-1).abs().masked_fill(largest.amax(-1) == -math.inf, 0.0)
    risen = torch.zeros_like(sizes)
    for n in range(largest.shape[-1]):
        later = largest[..., n:].cummax(-1).values
        rises = (later[..., 1:] > later[..., :-1]) * sizes[..., n + 1 :]
        risen[..., n] = torch.maximum(sizes[..., n], last) + rises.sum(-1)
    return risen


def of_tiles(probs: torch.Tensor, v: torch.Tensor, form: type, un: Units) -> tuple[torch.Tensor, torch.Tensor | None]:
    """probs (batch, nheads, i, j), v (batch, nheads, j, headdim) -> noise, lost part of out."""
    acc = Accumulator(un.u, un.tiny)
    noise, lost_out = 0.0, None
    for start in range(0, v.shape[2], un.tile_sum):
        keys = slice(start, start + un.tile_sum)
        p, v_tile = probs[..., keys], v[:, :, keys]
        noise = noise + form.total(p.shape[-1], acc, p @ v_tile, form.size(p) @ form.size(v_tile))
        lost = form.lost(p, un.u * p.sum(-1, keepdim=True))
        if lost is not None:
            lost_out = lost @ v_tile if lost_out is None else lost_out + lost @ v_tile
    return noise, lost_out


def of_parts(out: torch.Tensor, terms: torch.Tensor, form: type, un: Units) -> torch.Tensor:
    """out, terms = sum_j size(P v) -> the noise of out from parts of it that are rounded."""
    return form.larger(out, terms) * form.unit(un.u_out) + form.unit(un.tiny_out)


def grown(bound: torch.Tensor) -> torch.Tensor:
    """Return exp(D) - 1 for a bound D on the error of an exponent."""
    return torch.expm1(bound.clamp(max=LARGEST_EXPONENT))


class Growth(NamedTuple):
    """The terms that replace E_s if the bound D on the error of S is large."""

    grown: torch.Tensor  # exp(D) - 1
    e_s: torch.Tensor  # in out and delta
    row: torch.Tensor  # ln sum_j P exp(D), in lse
    sink: torch.Tensor | None  # what replaces E_sink + E_keys, in out and delta


def of_exponent(e_s: torch.Tensor, probs: torch.Tensor, sink: SinkScores | None) -> Growth:
    """e_s, probs (batch, nheads, i, j) -> Growth."""
    larger = grown(e_s)
    shrunk = (probs * torch.exp(-e_s.clamp(max=LARGEST_EXPONENT))).sum(-1, keepdim=True)
    more, of_sink = (probs * larger).sum(-1, keepdim=True), None
    if sink is not None:
        bound = sink.e_sink + sink.e_keys
        shrunk = shrunk + sink.weight * torch.exp(-bound.clamp(max=LARGEST_EXPONENT))
        of_sink = grown(bound)
        more = more + sink.weight * of_sink + sink.keys * grown(sink.e_keys)
    shrunk = shrunk.masked_fill(shrunk == 0, 1.0)
    return Growth(larger, larger / shrunk, torch.log1p(more), None if of_sink is None else of_sink / shrunk)
