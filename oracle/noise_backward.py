"""The noise of the backward: of dP, delta and T, the gradient of S.

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

Sums of the forward lose terms (noise_forward.py), which also makes delta wrong:

    delta   E_delta += size(sum_d dout sum_j L v)

If many rows have nearly the same out (values around 1, and many keys in each row), a half dtype
rounds it to the same number in all of them. Then delta has an error of the same sign in all of
them, which adds up in sums over rows. So in the independent form `lost` of delta also has sum_d
dout (out - out as stored), with its sign, for dq, dk and dbias (budget.py). (The linear form
already counts unit(u_out) of every row.)

Matrix units truncate (rounding.py), so sums over values of one sign come out small in all rows at
once: out by up to truncated_seqlen_k, dP by truncated_headdim. For dP itself this is ordinary
noise: E_dP += size(dP) truncated_headdim. Its effect on T,

    cut = P (root(truncated_seqlen_k) delta + root(truncated_headdim) dP)

adds up over rows with its sign, for dk and dbias. Which of the two is larger depends on the unit,
so both are added although they have opposite signs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .noise_forward import Chunk, Lse, Out, Scores, summed
from .rounding import HEADDIM_SUM


@dataclass(frozen=True)
class DP:
    """dP (batch, nheads, i, j), its noise, and terms = sum_d size(dout v).

    in_delta (..., i, 1): the part of E_delta from its rounding to a half dtype; None if it is not.
    """

    value: torch.Tensor
    noise: torch.Tensor
    terms: torch.Tensor
    in_delta: torch.Tensor | None


@dataclass(frozen=True)
class Delta:
    """delta (batch, nheads, i, 1) and its noise.

    moved (batch, nheads, i, j) = P (dP - sum_d dout out): how far a relative error of P moves it.
    parts: the noise of sum_d dout out from merged parts and narrow sums (declared.py); None if
    there are none. lost: the error of delta from terms that are lost and from the rounding of out,
    with its sign; None if there is none. cut: its error from truncation; None if nothing truncates.
    """

    value: torch.Tensor
    noise: torch.Tensor
    moved: torch.Tensor
    parts: torch.Tensor | None
    lost: torch.Tensor | None
    cut: torch.Tensor | None


@dataclass(frozen=True)
class T:
    """T (batch, nheads, i, j), its size and its noise.

    cut: its error from truncation; None if nothing truncates.
    """

    value: torch.Tensor
    size: torch.Tensor
    noise: torch.Tensor
    cut: torch.Tensor | None


def of_dp(c: Chunk, s: Scores) -> DP:
    """Return dP with E_dP."""
    form, un = c.form, c.un
    dp, terms = c.dout @ c.p.v.mT, form.size(c.dout) @ c.size_v.mT
    noise = form.total(c.headdim, HEADDIM_SUM, dp, terms)
    if un.u_mul:
        noise.add_(terms, alpha=2 * form.unit(un.u_mul))
    if un.matrix:
        form.add(noise, dp, form.truncation(c.headdim))
    in_delta = None
    if un.narrow_scores:
        rounded = form.size(dp) * form.unit(un.u) + form.unit(un.tiny)
        noise += rounded
        in_delta = (s.size_p * rounded).sum(-1, keepdim=True)
    return DP(dp, noise, terms, in_delta)


def of_delta(c: Chunk, s: Scores, out: Out, dp: DP) -> Delta:
    """Return delta with E_delta."""
    form, un = c.form, c.un
    size, unit = form.size, form.unit
    delta = (c.dout * out.value).sum(-1, keepdim=True)
    size_dout, size_dp = size(c.dout), size(dp.value)
    parts = None
    if un.merged or un.narrow or un.cast_sum:
        parts = s.of_rows.e_row * form.larger(delta, (s.size_p * size_dp).sum(-1, keepdim=True))
    moved = s.probs * (dp.value - delta)
    from_probs = size(moved).mul_(s.noise)
    from_probs.addcmul_(size_dp, s.size_p, value=s.cast + unit(un.u_mul))
    add_seen(from_probs, size_dp.mul_(unit(un.tiny_p)), s.seen)
    noise = from_probs.sum(-1, keepdim=True)
    noise = noise + (size_dout * (out.stored + size(out.value) * unit(un.u_out) + unit(un.tiny_out))).sum(
        -1, keepdim=True
    )
    noise += form.total(c.headdim, HEADDIM_SUM, delta, (size_dout * size(out.value)).sum(-1, keepdim=True))
    for part in (dp.in_delta, parts):
        if part is not None:
            noise += part
    if un.tile_sum is not None:
        parts = summed(parts, (size_dout * out.tiles).sum(-1, keepdim=True))
    lost = cut = None
    if out.lost is not None:
        lost = (c.dout * out.lost).sum(-1, keepdim=True)
        noise += size(lost)
    if un.stored != torch.float32 and not form.linear:
        stored = out.value.to(un.stored).double()
        lost = summed(lost, (c.dout * (out.value - stored)).sum(-1, keepdim=True))
    if un.matrix and not form.linear:
        cut = form.truncation(c.seqlen_k) ** 0.5 * delta
        noise += size(cut)
    return Delta(delta, noise, moved, parts, lost, cut)


def of_t(c: Chunk, s: Scores, lse: Lse, dp: DP, delta: Delta, again: torch.Tensor) -> T:
    """Return T with E_T. again: the noise of P in the backward, from S alone."""
    form, un = c.form, c.un
    size, unit = form.size, form.unit
    from_delta = dp.value - delta.value
    t = delta.moved
    size_t = size(t)
    noise = again + (2 * unit(un.u_p) + 2 * unit(un.u_mul) + form.steps(4))
    noise.mul_(size_t).addcmul_(s.size_p, dp.noise)
    if s.growth is not None:  # errors of dP and delta are multiplied by a larger P
        noise.addcmul_(s.size_p * (again + lse.norm), dp.noise + delta.noise)
    smallest = unit(un.tiny_p / (min(1.0, abs(c.p.scale)) or 1.0))
    add_seen(noise, size(from_delta).mul_(unit(un.tiny_p)).add_(smallest), s.seen)
    cut = None
    if delta.cut is not None:
        cut = (dp.value * form.truncation(c.headdim) ** 0.5).add_(delta.cut).mul_(s.probs)
    return T(t, size_t, noise, cut)


def add_seen(noise: torch.Tensor, x: torch.Tensor, seen: torch.Tensor | None) -> None:
    """noise += x where a key is seen, in place."""
    if seen is None:
        noise += x
    else:
        noise.addcmul_(x, seen)
