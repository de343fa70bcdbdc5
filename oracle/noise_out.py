"""The noise of out and lse.

    out     E_out = sum_j size(P) [size(v - out) E_s + size(v) (unit(u_p) + 2 unit(u_mul))]
                    + sum_j size(v) unit(tiny_p) + total_seqlen_k + size(out) steps(4)
            v - out appears because a score that grows takes weight from the other keys. Then come
            the cast of P, and subnormal P.
    lse     E_lse = sum_j size(P) E_s + truncated_headdim of sum_j P |R f| + size(lse) steps(1)
                    + seqlen_k unit(acc) + steps(16)
            f is the slope of the softcap, 1 without one.

A term below half an ulp of the sum that it is added to is lost entirely, so sums lose terms and
come out too small. These are the terms far from a row's maximum if P falls off smoothly (ALiBi),
and they are lost in all columns of v at once. In the independent form, whose roundings have either
sign, the lost terms are added with their sign: L = P where P < 2^-24, else 0. (Sums of one tile are
float32 even if the accumulator is narrower; total_seqlen_k has the accumulator's roundings.)

    out     E_out += size(sum_j L v)            lse   E_lse += size(sum_j L)

Matrix units truncate (rounding.py), so sums over values of one sign come out small in all rows at
once, out by up to truncated_seqlen_k. For out itself this is ordinary noise:
E_out += size(out) truncated_seqlen_k.

sinks.py and declared.py derive what sinks and other fields of the declared precision add.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from . import declared
from .noise_scores import Chunk, Scores, summed
from .rounding import FLOAT32


@dataclass(frozen=True)
class Out:
    """The noise of out: matrices (batch, nheads, i, headdim_v), unless a shape is given.

    noise: E_out; None if it is not wanted. stored: the part that errors of P do not make. narrow:
    the part of `stored` from narrow sums and rounded parts; None if there are none. lost: the sum
    of the terms that are lost, with its sign; None if there are none. moved (..., i, 1):
    sum_j size(P) E_s.
    """

    value: torch.Tensor
    noise: torch.Tensor | None
    stored: torch.Tensor
    narrow: torch.Tensor | float | None
    lost: torch.Tensor | None
    moved: torch.Tensor


@dataclass(frozen=True)
class Lse:
    """The noise of lse, (batch, nheads, i, 1).

    norm: the relative noise of P = exp(S - lse) from lse, which a row shares.
    shared: an error of lse that rows may share. It has three parts: 2^-24 lse, because a constant
    like ln 2, or a bias common to all rows, is rounded once for all rows; the declared error of
    exp; and the rounded sink. None in the linear form, where errors of rows add up anyway.
    """

    noise: torch.Tensor
    norm: torch.Tensor
    shared: torch.Tensor | None


def of_out(c: Chunk, s: Scores, lost: torch.Tensor | None, wanted: bool) -> Out:
    """Return out with E_out. lost: L. wanted: whether E_out itself is wanted."""
    p, form, un = c.p, c.form, c.un
    size, unit, size_v = form.size, form.unit, c.size_v
    moved = s.size_p * s.noise
    out = s.probs @ p.v
    terms = s.size_p @ size_v
    row_moved = moved.sum(-1, keepdim=True)
    stored = form.total(c.seqlen_k, un.acc, out, terms) + size(out) * form.steps(4) + terms * unit(un.u_mul)
    if s.sink is not None:
        lost = _lost_beside_a_sink(c, s)
    lost_out = None if lost is None else lost @ p.v
    if un.matrix:
        form.add(stored, out, form.truncation(c.seqlen_k))
    narrow = None
    if un.rounded_parts:
        narrow = declared.of_parts(out, terms, form, un)
    if un.tile_sum is not None:
        tiles, lost_in_tiles = declared.of_tiles(s.probs, p.v, form, un)
        narrow, lost_out = summed(narrow, tiles), summed(lost_out, lost_in_tiles)
    if narrow is not None:
        stored += narrow
    noise = None
    if wanted:
        if form.linear:
            noise = moved @ size_v + size(out) * row_moved  # |v - out| <= |v| + |out| makes this a matrix product
        else:
            noise = (moved @ size_v - 2 * out * (moved @ p.v) + size(out) * row_moved).clamp_(min=0.0)
        noise += stored + terms * (s.cast + unit(un.u_mul))
        noise += s.of_rows.e_row * form.larger(out, terms)
        if s.sink is not None:
            noise += of_sink(s, size, out)
        if lost_out is not None:
            noise += size(lost_out)
        noise += (size_v.sum(-2, keepdim=True) if s.seen is None else s.seen @ size_v) * unit(un.tiny_p)
    return Out(out, noise, stored, narrow, lost_out, row_moved)


def _lost_beside_a_sink(c: Chunk, s: Scores) -> torch.Tensor | None:
    """Return L of a sum of keys alone, and the elements that a cast flushes."""
    lost, flushed = c.form.lost(s.probs, FLOAT32 * s.sink.keys), c.form.flushed(s.probs, c.un.tiny_p)
    return summed(lost, flushed) if lost is None or flushed is None else torch.maximum(lost, flushed)


def of_sink(s: Scores, size: object, value: torch.Tensor) -> torch.Tensor:
    """Return the noise that errors of the sink's weight give to sum_j P x_j = value (..., i, n)."""
    if s.growth is not None:
        return size(s.sink.weight * value) * s.growth.sink
    return s.sink.moved(size, value)


def of_lse(c: Chunk, s: Scores, moved: torch.Tensor, lost: torch.Tensor | None) -> Lse:
    """Return E_lse. moved: sum_j size(P) E_s. lost: L."""
    form, un = c.form, c.un
    if s.growth is not None:
        moved = s.growth.row
    elif s.sink is not None:
        moved = moved + form.size(s.sink.weight) * s.sink.e_sink + form.size(s.sink.keys) * s.sink.e_keys
    noise = (moved + s.of_rows.e_lse + form.size(s.lse) * form.steps(1)).add_(
        c.seqlen_k * form.unit(un.acc.u) + form.steps(16)
    )
    noise += form.size(un.exp)
    if lost is not None:
        noise += form.size(lost.sum(-1, keepdim=True))
    if un.matrix:  # all scores of a row are truncated to the same side, which cancels in P but not in lse
        products = s.products.abs().mul_(s.probs)
        products = products if s.cap is None else products.mul_(s.cap.slope)
        form.add(noise, products.sum(-1, keepdim=True), form.truncation(c.headdim))
    noise = noise.masked_fill(s.dead, 0.0)
    norm = noise if s.growth is None else declared.grown(noise)
    return Lse(noise, norm, None if form.linear else _shared(s, un.exp))


def _shared(s: Scores, exp: float) -> torch.Tensor:
    """Return the errors of lse that rows may share, added up as if they had the same sign."""
    lse = s.finite_lse
    shared = lse * FLOAT32
    if exp:
        shared = shared + torch.where(lse < 0, -exp, exp)
    if s.sink is not None:
        of_sink = s.sink.weight * s.sink.shared
        shared = shared + torch.where(lse < 0, -of_sink.abs(), of_sink.abs())
    return shared
