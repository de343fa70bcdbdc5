"""The noise of the forward: of scores, out and lse.

    score   E_s   = 2 unit(u_mul) qk + total_headdim + truncated_headdim
                    + (size(S) + size(m - S)) steps(1) + steps(4)
            The terms: the products, their sum, scaling and adding the bias, subtracting m, and exp.
            The absolute error of exp's argument is a relative error of P. With a bias there is also
            size(scale q k) steps(1), as the bias may cancel the product.
    out     E_out = sum_j size(P) [size(v - out) E_s + size(v) (unit(u_p) + 2 unit(u_mul))]
                    + sum_j size(v) unit(tiny_p) + total_seqlen_k + size(out) steps(4)
            v - out appears because a score that grows takes weight from the other keys. Then come
            the cast of P, and subnormal P.
    lse     E_lse = sum_j size(P) E_s + truncated_headdim of sum_j P |S| + size(lse) steps(1)
                    + seqlen_k unit(acc) + steps(16)

A term below half an ulp of the sum that it is added to is lost entirely, so sums lose terms and
come out too small. These are the terms far from a row's maximum if P falls off smoothly (ALiBi),
and they are lost in all columns of v at once. In the independent form, whose roundings have either
sign, the lost terms are added with their sign: L = P where P < 2^-24, else 0. (Sums of one tile are
float32 even if the accumulator is narrower; total_seqlen_k has the accumulator's roundings.)

    out     E_out += size(sum_j L v)            lse   E_lse += size(sum_j L)

Matrix units truncate (rounding.py), so sums over values of one sign come out small in all rows at
once, out by up to truncated_seqlen_k. For out itself this is ordinary noise:
E_out += size(out) truncated_seqlen_k.

declared.py derives the noise of other fields of the declared precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from . import declared
from .attention import Operands, softmax
from .rounding import FLOAT32, HEADDIM_SUM, Units


@dataclass(frozen=True)
class Chunk:
    """Some rows of queries, the form of the budget, and what the declared precision rounds."""

    p: Operands
    rows: slice
    form: type
    un: Units

    @property
    def headdim(self) -> int:
        return self.p.k.shape[3]

    @property
    def seqlen_k(self) -> int:
        return self.p.k.shape[2]

    @cached_property
    def size_v(self) -> torch.Tensor:
        return self.form.size(self.p.v)

    @cached_property
    def dout(self) -> torch.Tensor:
        return self.p.dout[:, :, self.rows]


@dataclass(frozen=True)
class Scores:
    """Scores and weights of one chunk, with their noise: matrices (batch, nheads, i, j), unless a
    shape is given.

    products = scale q k. qk = sum_d size(scale q k), the sizes of their terms. seen: 1.0 where a
    key is seen; None if all are. lse (..., i, 1): its value, with 0 in rows that see no key, which
    `dead` marks.
    noise: E_s in the forward, a relative noise of P. again: the same in the backward, which
    computes P = exp(S - lse) without a running maximum, and perhaps from other q and k; lse adds
    its own noise. scaled: the part of `again` from scaled or quantised q and k; None if they are
    neither.
    cast: the noise of casting P, if `noise` does not have it.
    of_rows: the noise of rows from declared.py. growth: what replaces E_s where errors of exponents
    are large; None elsewhere. grown: exp(D) - 1 in the backward.
    """

    products: torch.Tensor
    probs: torch.Tensor
    size_p: torch.Tensor
    qk: torch.Tensor
    seen: torch.Tensor | None
    lse: torch.Tensor
    dead: torch.Tensor
    noise: torch.Tensor
    again: torch.Tensor
    scaled: torch.Tensor | None
    cast: float
    of_rows: declared.Rows
    growth: declared.Growth | None
    grown: torch.Tensor | None

    @property
    def finite_lse(self) -> torch.Tensor:
        return self.lse.masked_fill(self.dead, 0.0)


@dataclass(frozen=True)
class Out:
    """The noise of out: matrices (batch, nheads, i, headdim), unless a shape is given.

    stored: the part that errors of P do not make. tiles: the part of that from narrow sums; None if
    there are none. lost: the sum of the terms that are lost, with its sign; None if there are none.
    moved (..., i, 1): sum_j size(P) E_s. terms = sum_j size(P v).
    """

    value: torch.Tensor
    noise: torch.Tensor | None
    stored: torch.Tensor
    tiles: torch.Tensor | float | None
    lost: torch.Tensor | None
    moved: torch.Tensor


@dataclass(frozen=True)
class Lse:
    """The noise of lse, (batch, nheads, i, 1).

    norm: the relative noise of P = exp(S - lse) from lse, which a row shares.
    shared: an error of lse that rows may share. It has two parts: 2^-24 lse, because a constant
    like ln 2, or a bias common to all rows, is rounded once for all rows; and the declared error of
    exp. None in the linear form, where errors of rows add up anyway.
    """

    noise: torch.Tensor
    norm: torch.Tensor
    shared: torch.Tensor | None


def of_scores(c: Chunk) -> Scores:
    """Return the scores and weights of a chunk, with E_s."""
    p, form, un = c.p, c.form, c.un
    size, unit = form.size, form.unit
    r = p.products(c.rows)
    s = p.mask(r, c.rows)
    probs, m, lse = softmax(s)
    of_maximum = declared.of_maximum(s, un) if un.narrow else None
    qk = size(p.scale * p.q[:, :, c.rows]) @ size(p.k).mT
    e_s = form.total(c.headdim, HEADDIM_SUM, r, qk)
    if un.matrix:
        form.add(e_s, r, form.truncation(c.headdim))
    if un.u_mul:
        e_s.add_(qk, alpha=2 * unit(un.u_mul))
    seen = None
    if p.masked:
        hidden = s == float("-inf")
        seen = (~hidden).double()
        s = s.masked_fill(hidden, 0.0)
        gap = (m - s).masked_fill_(hidden, 0.0)
    else:
        gap = m - s
    if p.variant.bias is not None:
        form.add(e_s, r, form.steps(1))
    form.add(e_s, s, form.steps(1))
    form.add(e_s, gap, form.steps(1))
    if un.narrow_scores:
        form.add(e_s, r, 2 * unit(un.u))
        form.add(e_s, s, unit(un.u))
        e_s += (1 + size(p.scale)) * unit(un.tiny)
    e_s.add_(form.steps(4))
    del s, gap
    if un.exp:
        e_s += unit(un.exp)
    dead = lse == float("-inf")
    rows = declared.of_rows(lse.masked_fill(dead, 0.0), m, c.seqlen_k, form, un)
    # The backward computes P again, perhaps from other q and k.
    of_forward = scaled = declared.of_scores(p, c.rows, form, un, qk, un.scaled)
    if un.scaled != un.scaled_in_backward:
        scaled = declared.of_scores(p, c.rows, form, un, qk, un.scaled_in_backward)
    again = summed(e_s, scaled)
    e_s = again if of_forward is scaled else summed(e_s, of_forward)
    cast = unit(un.u_p)
    if un.cast_sum:  # l has this error, too, so it is one of P
        e_s, cast = e_s + cast, 0.0
    if of_maximum is not None:
        e_s = e_s + of_maximum
    if un.narrow and un.merged:
        e_s = e_s + rows.e_s
    growth = grown = None
    if un.coarse:
        growth = declared.of_exponent(e_s, probs)
        grown = growth.grown if e_s is again else declared.grown(again)
        e_s = growth.e_s
    return Scores(
        products=r,
        probs=probs,
        size_p=size(probs),
        qk=qk,
        seen=seen,
        lse=lse,
        dead=dead,
        noise=e_s,
        again=again,
        scaled=scaled,
        cast=cast,
        of_rows=rows,
        growth=growth,
        grown=grown,
    )


def of_out(c: Chunk, s: Scores, lost: torch.Tensor | None, wanted: bool) -> Out:
    """Return out with E_out. lost: L. wanted: whether E_out itself is wanted."""
    p, form, un = c.p, c.form, c.un
    size, unit, size_v = form.size, form.unit, c.size_v
    moved = s.size_p * s.noise
    out = s.probs @ p.v
    terms = s.size_p @ size_v
    row_moved = moved.sum(-1, keepdim=True)
    stored = form.total(c.seqlen_k, un.acc, out, terms) + size(out) * form.steps(4) + terms * unit(un.u_mul)
    lost_out = None if lost is None else lost @ p.v
    if un.matrix:
        form.add(stored, out, form.truncation(c.seqlen_k))
    tiles = None
    if un.tile_sum is not None:
        tiles, lost_in_tiles = declared.of_tiles(s.probs, p.v, form, un)
        stored += tiles
        lost_out = summed(lost_out, lost_in_tiles)
    noise = None
    if wanted:
        if form.linear:
            noise = moved @ size_v + size(out) * row_moved  # |v - out| <= |v| + |out| makes this a matrix product
        else:
            noise = (moved @ size_v - 2 * out * (moved @ p.v) + size(out) * row_moved).clamp_(min=0.0)
        noise += stored + terms * (s.cast + unit(un.u_mul))
        noise += s.of_rows.e_row * form.larger(out, terms)
        if lost_out is not None:
            noise += size(lost_out)
        noise += (size_v.sum(-2, keepdim=True) if s.seen is None else s.seen @ size_v) * unit(un.tiny_p)
    return Out(out, noise, stored, tiles, lost_out, row_moved)


def of_lse(c: Chunk, s: Scores, moved: torch.Tensor, lost: torch.Tensor | None) -> Lse:
    """Return E_lse. moved: sum_j size(P) E_s. lost: L."""
    form, un = c.form, c.un
    if s.growth is not None:
        moved = s.growth.row
    noise = (moved + s.of_rows.e_lse + form.size(s.lse) * form.steps(1)).add_(
        c.seqlen_k * form.unit(un.acc.u) + form.steps(16)
    )
    noise += form.size(un.exp)
    if lost is not None:
        noise += form.size(lost.sum(-1, keepdim=True))
    if un.matrix:  # all scores of a row are truncated to the same side, which cancels in P but not in lse
        form.add(noise, s.products.abs().mul_(s.probs).sum(-1, keepdim=True), form.truncation(c.headdim))
    noise = noise.masked_fill(s.dead, 0.0)
    norm = noise if s.growth is None else declared.grown(noise)
    return Lse(noise, norm, None if form.linear else _shared(s.finite_lse, un))


def _shared(lse: torch.Tensor, un: Units) -> torch.Tensor:
    """Return the errors of lse that rows may share, added up as if they had the same sign."""
    of_lse = lse * FLOAT32
    return of_lse + torch.where(lse < 0, -un.exp, un.exp) if un.exp else of_lse


def summed(a: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor | None:
    """Return a + b, where None means 0; None if both are None."""
    return b if a is None else a if b is None else a + b
