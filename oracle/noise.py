"""The rounding errors of a correct kernel, derived for one chunk of queries at a time.

The names are the same as in attention.py. E_x is the noise of x, a variance or a bound. unit,
steps, total and size are functions of the form (algebra.py). Units (rounding.py) says what the
declared precision rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from . import declared
from .attention import Operands, softmax
from .rounding import FLOAT32, HEADDIM_SUM, Units


@dataclass(frozen=True)
class Noise:
    """The noise of one chunk: matrices (batch, nheads, i, j), unless a shape is given.

    out, e_out (..., i, headdim). e_lse, e_delta, delta (..., i, 1).
    e_s, e_norm: the relative noise of P = exp(S - lse) in the backward, from S and from lse. A row
    shares e_norm.
    e_forward: the relative noise of P in the forward, from S.
    e_scaled: the part of e_s from scaled or quantised q and k; None if they are neither.
    e_parts (..., i, 1): the noise of sum_d dout out from merged parts and narrow sums
    (declared.py); None if there are none.
    qk = sum_d size(scale q k), dov = sum_d size(dout v): the sizes of the terms of S and dP.
    lost: the elements of P that sums may lose, all with the same sign (below); None if there are
    none.
    lost_delta (..., i, 1): the error of delta from these and from the rounding of out, with its
    sign.
    cut_t: the error of T from truncation; None if nothing truncates.
    shared (..., i, 1): an error of lse that rows may share. It has two parts: 2^-24 lse, because a
    constant like ln 2, or a bias common to all rows, is rounded once for all rows; and the declared
    error of exp. None in the linear form, where errors of rows add up anyway.
    """

    products: torch.Tensor
    probs: torch.Tensor
    size_p: torch.Tensor
    seen: torch.Tensor | None  # None: every key is seen
    qk: torch.Tensor
    e_s: torch.Tensor
    e_forward: torch.Tensor
    e_scaled: torch.Tensor | None
    e_out: torch.Tensor | None
    e_lse: torch.Tensor
    e_norm: torch.Tensor
    out: torch.Tensor
    dp: torch.Tensor | None = None
    delta: torch.Tensor | None = None
    t: torch.Tensor | None = None
    size_t: torch.Tensor | None = None
    dov: torch.Tensor | None = None
    e_delta: torch.Tensor | None = None
    e_parts: torch.Tensor | None = None
    e_t: torch.Tensor | None = None
    shared: torch.Tensor | None = None
    lost: torch.Tensor | None = None
    lost_delta: torch.Tensor | None = None
    cut_t: torch.Tensor | None = None


def noise(p: Operands, chunk: slice, form: type, un: Units, of_out: bool = True) -> Noise:
    """Return the Noise of the rows in chunk. of_out: whether e_out is wanted.

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
    dP      E_dP  = 2 unit(u_mul) dov + total_headdim
    delta   E_delta = sum_j [size(T) E_s + size(P dP) (unit(u_p) + unit(u_mul))
                    + size(dP) unit(tiny_p)]
                    + sum_d size(dout) [rest of E_out + size(out) unit(u_out) + unit(tiny_out)]
                    + total_headdim
            delta = sum_d dout out, and out was stored rounded. An error of P_ij moves all of out_i
            along v_j. So its effect on delta is a single error, with the factor dP_ij, and not
            headdim independent errors.
    T       E_T   = size(T) (E_s + 2 unit(u_p) + 2 unit(u_mul) + steps(4)) + size(P) E_dP
                    + size(dP - delta) unit(tiny_p) + unit(tiny_p / min(1, |scale|))
            P may be cast before it is multiplied (CUTLASS reads it back from shared memory). T is
            cast after that, before or after it is scaled. The errors of lse and delta are not in
            E_T: a row shares them, so they are kept apart.

    A term below half an ulp of the sum that it is added to is lost entirely, so sums lose terms and
    come out too small. These are the terms far from a row's maximum if P falls off smoothly
    (ALiBi), and they are lost in all columns of v at once. In the independent form, whose roundings
    have either sign, the lost terms are added with their sign: L = P where P < 2^-24, else 0. (Sums
    of one tile are float32 even if the accumulator is narrower; total_seqlen_k has the
    accumulator's roundings.)

    out     E_out   += size(sum_j L v)          lse   E_lse += size(sum_j L)
    delta   E_delta += size(sum_d dout sum_j L v)

    If many rows have nearly the same out (values around 1, and many keys in each row), a half dtype
    rounds it to the same number in all of them. Then delta has an error of the same sign in all of
    them, which adds up in sums over rows. So in the independent form lost_delta also has sum_d dout
    (out - out as stored), with its sign, for dq, dk and dbias (budget.py). (The linear form already
    counts unit(u_out) of every row.)

    Matrix units truncate (rounding.py), so sums over values of one sign come out small in all rows
    at once: out by up to truncated_seqlen_k, dP by truncated_headdim. For out and dP themselves
    this is ordinary noise: E_out += size(out) truncated_seqlen_k, E_dP += size(dP)
    truncated_headdim. Its effect on T,

    cut_t = P (root(truncated_seqlen_k) delta + root(truncated_headdim) dP)

    adds up over rows with its sign, for dk and dbias. Which of the two is larger depends on the
    unit, so both are added although they have opposite signs.

    declared.py derives the noise of other fields of the declared precision.
    """
    size, unit = form.size, form.unit
    seqlen_k, headdim = p.k.shape[2:]
    size_v = size(p.v)
    r = p.products(chunk)
    s = p.mask(r, chunk)
    probs, m, lse = softmax(s)
    size_p = size(probs)
    of_maximum = declared.of_maximum(s, un) if un.narrow else None

    # Scores.
    qk = size(p.scale * p.q[:, :, chunk]) @ size(p.k).mT
    e_s = form.total(headdim, HEADDIM_SUM, r, qk)
    if un.matrix:
        form.add(e_s, r, form.truncation(headdim))
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
    rows = declared.of_rows(lse.masked_fill(dead, 0.0), m, seqlen_k, form, un)
    # The backward computes P again: without a running maximum, and perhaps from other q and k.
    of_forward = e_scaled = declared.of_scores(p, chunk, form, un, qk, un.scaled)
    if un.scaled != un.scaled_in_backward:
        e_scaled = declared.of_scores(p, chunk, form, un, qk, un.scaled_in_backward)
    e_s_again = _sum(e_s, e_scaled)
    e_s = e_s_again if of_forward is e_scaled else _sum(e_s, of_forward)
    of_cast = unit(un.u_p)
    if un.cast_sum:  # l has this error, too, so it is one of P
        e_s, of_cast = e_s + of_cast, 0.0
    if of_maximum is not None:
        e_s = e_s + of_maximum
    if un.narrow and un.merged:
        e_s = e_s + rows.e_s
    growth = None
    if un.coarse:
        growth = declared.of_exponent(e_s, probs)
        grown = growth.grown if e_s is e_s_again else declared.grown(e_s_again)
        e_s = growth.e_s

    # out.
    moved = size_p * e_s
    out = probs @ p.v
    terms = size_p @ size_v
    row_moved = moved.sum(-1, keepdim=True)
    e_stored = form.total(seqlen_k, un.acc, out, terms) + size(out) * form.steps(4) + terms * unit(un.u_mul)
    lost = form.lost(probs)
    lost_out = None if lost is None else lost @ p.v
    if un.matrix:
        form.add(e_stored, out, form.truncation(seqlen_k))
    if un.tile_sum is not None:
        e_tiles, lost_in_tiles = declared.of_tiles(probs, p.v, form, un)
        e_stored += e_tiles
        lost_out = _sum(lost_out, lost_in_tiles)
    e_out = None
    if of_out:
        if form.linear:
            e_out = moved @ size_v + size(out) * row_moved  # |v - out| <= |v| + |out| makes this a matrix product
        else:
            e_out = (moved @ size_v - 2 * out * (moved @ p.v) + size(out) * row_moved).clamp_(min=0.0)
        e_out += e_stored + terms * (of_cast + unit(un.u_mul))
        e_out += rows.e_row * form.larger(out, terms)
        if lost_out is not None:
            e_out += size(lost_out)
        e_out += (size_v.sum(-2, keepdim=True) if seen is None else seen @ size_v) * unit(un.tiny_p)
    # lse.
    if growth is not None:
        row_moved = growth.row
    e_lse = (row_moved + rows.e_lse + size(lse) * form.steps(1)).add_(seqlen_k * unit(un.acc.u) + form.steps(16))
    e_lse += size(un.exp)
    if lost is not None:
        e_lse += size(lost.sum(-1, keepdim=True))
    if un.matrix:  # all scores of a row are truncated to the same side, which cancels in P but not in lse
        form.add(e_lse, r.abs().mul_(probs).sum(-1, keepdim=True), form.truncation(headdim))
    e_lse = e_lse.masked_fill(dead, 0.0)
    e_norm = e_lse
    if growth is not None:
        e_norm = declared.grown(e_lse)
        e_s_again = grown * (1.0 + e_norm)
    common = {
        "products": r,
        "probs": probs,
        "size_p": size_p,
        "seen": seen,
        "qk": qk,
        "e_s": e_s_again,
        "e_forward": e_s,
        "e_scaled": e_scaled,
        "e_out": e_out,
        "e_lse": e_lse,
        "e_norm": e_norm,
        "out": out,
        "lost": lost,
        "shared": None if form.linear else _shared(lse.masked_fill(dead, 0.0), un),
    }
    if p.dout is None:
        return Noise(**common)

    # dP and delta.
    dout = p.dout[:, :, chunk]
    dp = dout @ p.v.mT
    delta = (dout * out).sum(-1, keepdim=True)
    from_delta = dp - delta
    t = probs * from_delta
    dov = size(dout) @ size_v.mT
    e_dp = form.total(headdim, HEADDIM_SUM, dp, dov)
    if un.u_mul:
        e_dp.add_(dov, alpha=2 * unit(un.u_mul))
    if un.matrix:
        form.add(e_dp, dp, form.truncation(headdim))
    size_t, size_dp = size(t), size(dp)
    e_dp_in_delta = None
    if un.narrow_scores:
        e_rounded = size_dp * unit(un.u) + unit(un.tiny)
        e_dp += e_rounded
        e_dp_in_delta = (size_p * e_rounded).sum(-1, keepdim=True)
    e_parts = None
    if un.merged or un.narrow or un.cast_sum:
        e_parts = rows.e_row * form.larger(delta, (size_p * size_dp).sum(-1, keepdim=True))
    from_probs = (size_t * e_s).addcmul_(size_dp, size_p, value=of_cast + unit(un.u_mul))
    _add_seen(from_probs, size_dp.mul_(unit(un.tiny_p)), seen)
    e_stored = e_stored + size(out) * unit(un.u_out) + unit(un.tiny_out)
    e_delta = from_probs.sum(-1, keepdim=True) + (size(dout) * e_stored).sum(-1, keepdim=True)
    e_delta += form.total(headdim, HEADDIM_SUM, delta, (size(dout) * size(out)).sum(-1, keepdim=True))
    if e_dp_in_delta is not None:
        e_delta += e_dp_in_delta
    if e_parts is not None:
        e_delta += e_parts
    if un.tile_sum is not None:
        e_parts = _sum(e_parts, (size(dout) * e_tiles).sum(-1, keepdim=True))
    lost_delta = None
    if lost_out is not None:
        lost_delta = (dout * lost_out).sum(-1, keepdim=True)
        e_delta += size(lost_delta)
    if un.stored != torch.float32 and not form.linear:
        rounded_off = (dout * (out - out.to(un.stored).double())).sum(-1, keepdim=True)
        lost_delta = _sum(lost_delta, rounded_off)
    cut_t = None
    if un.matrix and not form.linear:
        cut_delta = form.truncation(seqlen_k) ** 0.5 * delta
        e_delta += size(cut_delta)
        cut_t = (dp * form.truncation(headdim) ** 0.5).add_(cut_delta).mul_(probs)
    # T, the gradient of S.
    e_t = (e_s_again + (2 * unit(un.u_p) + 2 * unit(un.u_mul) + form.steps(4))).mul_(size_t).addcmul_(size_p, e_dp)
    smallest_t = unit(un.tiny_p / (min(1.0, abs(p.scale)) or 1.0))
    if growth is not None:
        e_t.addcmul_(size_p * (e_s_again + e_norm), e_dp + e_delta)
    _add_seen(e_t, size(from_delta).mul_(unit(un.tiny_p)).add_(smallest_t), seen)
    return Noise(
        **common,
        size_t=size_t,
        dp=dp,
        delta=delta,
        t=t,
        dov=dov,
        e_delta=e_delta,
        e_parts=e_parts,
        e_t=e_t,
        lost_delta=lost_delta,
        cut_t=cut_t,
    )


def _shared(lse: torch.Tensor, un: Units) -> torch.Tensor:
    """Return the errors of lse that rows may share, added up as if they had the same sign."""
    of_lse = lse * FLOAT32
    return of_lse + torch.where(lse < 0, -un.exp, un.exp) if un.exp else of_lse


def _sum(a: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor | None:
    """Return a + b, where None means 0; None if both are None."""
    return b if a is None else a if b is None else a + b


def _add_seen(noise: torch.Tensor, x: torch.Tensor, seen: torch.Tensor | None) -> None:
    """noise += x where a key is seen, in place."""
    if seen is None:
        noise += x
    else:
        noise.addcmul_(x, seen)
