"""The noise of the backward: of dP, delta, T, the gradient of S, and U, the gradient of R.

    dP      E_dP  = 2 unit(u_mul) dov + total_headdim_v
    delta   E_delta = sum_j [size(P (dP - sum_d dout out)) E_s
                    + size(P dP) (unit(u_p) + unit(u_mul)) + size(dP) unit(tiny_p)]
                    + sum_d size(dout) [rest of E_out + size(out) unit(u_out) + unit(tiny_out)]
                    + total_headdim_v
            delta = sum_d dout out, and out was stored rounded. An error of P_ij moves all of out_i
            along v_j. So its effect on delta is a single error, with the factor dP_ij, and not
            headdim_v independent errors. With dlse, which is subtracted from delta, there is also
            (size(delta) + size(dlse)) steps(1), as it may be multiplied by ln 2, and
            size(dlse) E_norm: autograd of a logsumexp computes P once more, from lse. If statistics
            are in a half dtype, so is dlse: size(dlse) unit(u).
    T       E_T   = size(T) (E_s + 2 unit(u_p) + 2 unit(u_mul) + steps(4)) + size(P) E_dP
                    + size(dP - delta) unit(tiny_p) + unit(tiny_p / min(1, |scale|))
            P may be cast before it is multiplied (CUTLASS reads it back from shared memory). T is
            cast after that, before or after it is scaled. The errors of lse and delta are not in
            E_T: a row shares them, so they are kept apart. With dlse there is also
            size(P dlse) (E_s + steps(2)), as a kernel may add P dlse to P (dP - sum_d dout out),
            with a P of its own.
    U       T without a softcap; softcap.py derives its noise.

Sums of the forward lose terms (noise_out.py), which also makes delta wrong:

    delta   E_delta += size(sum_d dout sum_j L v)

If many rows have nearly the same out (values around 1, and many keys in each row), a half dtype
rounds it to the same number in all of them. Then delta has an error of the same sign in all of
them, which adds up in sums over rows. So in the independent form `lost` of delta also has sum_d
dout (out - out as stored), with its sign, for dq, dk and dbias (budget.py). (The linear form
already counts unit(u_out) of every row.)

Matrix units truncate (rounding.py), so sums over values of one sign come out small in all rows at
once: out by up to truncated_seqlen_k, dP by truncated_headdim_v. For dP itself this is ordinary
noise: E_dP += size(dP) truncated_headdim_v. Its effect on T,

    cut = P (root(truncated_seqlen_k) sum_d dout out + root(truncated_headdim_v) dP)

adds up over rows with its sign, for dk and dbias. Which of the two is larger depends on the unit,
so both are added although they have opposite signs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .noise_out import Lse, Out, of_sink
from .noise_scores import Chunk, Scores, summed
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

    of_out = sum_d dout out, which is delta without dlse. moved (batch, nheads, i, j) =
    P (dP - of_out): how far a relative error of P moves it.
    parts: the noise of sum_d dout out from merged parts and narrow sums (declared.py); None if
    there are none. lost: the error of delta from terms that are lost and from the rounding of out,
    with its sign; None if there is none. cut: its error from truncation; None if nothing truncates.
    """

    value: torch.Tensor
    noise: torch.Tensor
    of_out: torch.Tensor
    moved: torch.Tensor
    parts: torch.Tensor | None
    lost: torch.Tensor | None
    cut: torch.Tensor | None


@dataclass(frozen=True)
class T:
    """T or U (batch, nheads, i, j), its size and its noise.

    of_delta, size_of_delta: P in T, or P f in U, by which an error of delta moves it. cut: its
    error from truncation; None if nothing truncates.
    """

    value: torch.Tensor
    size: torch.Tensor
    noise: torch.Tensor
    of_delta: torch.Tensor
    size_of_delta: torch.Tensor
    cut: torch.Tensor | None


def of_dp(c: Chunk, s: Scores) -> DP:
    """Return dP with E_dP."""
    form, un = c.form, c.un
    dp, terms = c.dout @ c.p.v.mT, form.size(c.dout) @ c.size_v.mT
    noise = form.total(c.headdim_v, HEADDIM_SUM, dp, terms)
    if un.u_mul:
        noise.add_(terms, alpha=2 * form.unit(un.u_mul))
    if un.matrix:
        form.add(noise, dp, form.truncation(c.headdim_v))
    in_delta = None
    if un.narrow_scores:
        rounded = form.size(dp) * form.unit(un.u) + form.unit(un.tiny)
        noise += rounded
        in_delta = (s.size_p * rounded).sum(-1, keepdim=True)
    return DP(dp, noise, terms, in_delta)


def of_delta(c: Chunk, s: Scores, out: Out, lse: Lse, dp: DP) -> Delta:
    """Return delta with E_delta."""
    form, un = c.form, c.un
    size, unit = form.size, form.unit
    delta = of_out = (c.dout * out.value).sum(-1, keepdim=True)
    size_dout, size_dp = size(c.dout), size(dp.value)
    parts = None
    if un.merged or un.narrow or un.cast_sum:
        parts = s.of_rows.e_row * form.larger(of_out, (s.size_p * size_dp).sum(-1, keepdim=True))
    moved = s.probs * (dp.value - of_out)
    from_probs = size(moved).mul_(s.noise)
    from_probs.addcmul_(size_dp, s.size_p, value=s.cast + unit(un.u_mul))
    add_seen(from_probs, size_dp.mul_(unit(un.tiny_p)), s.seen)
    stored = out.stored + size(out.value) * unit(un.u_out) + unit(un.tiny_out)
    noise = from_probs.sum(-1, keepdim=True) + (size_dout * stored).sum(-1, keepdim=True)
    noise += form.total(c.headdim_v, HEADDIM_SUM, of_out, (size_dout * size(out.value)).sum(-1, keepdim=True))
    for part in (dp.in_delta, parts):
        if part is not None:
            noise += part
    if out.narrow is not None:
        parts = summed(parts, (size_dout * out.narrow).sum(-1, keepdim=True))
    if c.dlse is not None:
        delta = of_out - c.dlse
        noise += (size(delta) + size(c.dlse)) * form.steps(1) + size(c.dlse) * lse.norm
        if un.narrow:
            noise += size(c.dlse) * unit(un.u)
    lost = cut = None
    if out.lost is not None:
        lost = (c.dout * out.lost).sum(-1, keepdim=True)
        noise += size(lost)
    if un.stored != torch.float32 and not form.linear:
        stored = out.value.to(un.stored).double()
        lost = summed(lost, (c.dout * (out.value - stored)).sum(-1, keepdim=True))
    if s.sink is not None:
        noise += of_sink(s, size, of_out)
        if s.sink.shared is not None:
            lost = summed(lost, s.sink.weight * of_out * s.sink.shared)
    if un.matrix and not form.linear:
        cut = form.truncation(c.seqlen_k) ** 0.5 * of_out
        noise += size(cut)
    return Delta(delta, noise, of_out, moved, parts, lost, cut)


def of_t(c: Chunk, s: Scores, lse: Lse, dp: DP, delta: Delta, again: torch.Tensor) -> T:
    """Return T with E_T. again: the noise of P in the backward, from S alone."""
    form, un = c.form, c.un
    size, unit = form.size, form.unit
    from_delta = dp.value - delta.value
    t = delta.moved if c.dlse is None else s.probs * from_delta
    size_t = size(t)
    noise = again + (2 * unit(un.u_p) + 2 * unit(un.u_mul) + form.steps(4))
    noise.mul_(size_t).addcmul_(s.size_p, dp.noise)
    if c.dlse is not None:
        noise.addcmul_(s.size_p * size(c.dlse), again + form.steps(2))
    if s.growth is not None:  # errors of dP and delta are multiplied by a larger P
        noise.addcmul_(s.size_p * (again + lse.norm), dp.noise + delta.noise)
    add_seen(noise, size(from_delta).mul_(unit(un.tiny_p)).add_(unit(smallest(c))), s.seen)
    cut = None
    if delta.cut is not None:
        cut = (dp.value * form.truncation(c.headdim_v) ** 0.5).add_(delta.cut).mul_(s.probs)
    return T(t, size_t, noise, s.probs, s.size_p, cut)


def of_u(c: Chunk, s: Scores, lse: Lse, delta: Delta, t: T) -> T:
    """Return U with E_U; T without a softcap."""
    if s.cap is None:
        return t
    slope, e_slope = s.cap.slope, s.cap.e_slope
    size_slope = c.form.size(slope)
    noise = (t.noise * size_slope).addcmul_(t.size, e_slope)
    if c.un.coarse:
        noise.addcmul_(e_slope, torch.addcmul(t.noise, s.size_p, delta.noise).addcmul_(t.size, lse.norm))
    add_seen(noise, torch.full_like(noise, c.form.unit(smallest(c))), s.seen)
    cut = None if t.cut is None else t.cut * slope
    return T(t.value * slope, t.size * size_slope, noise, s.probs * slope, s.size_p * size_slope, cut)


def smallest(c: Chunk) -> float:
    """Return the step of a gradient of scores that is subnormal when it is cast, scaled or not."""
    return c.un.tiny_p / (min(1.0, abs(c.p.scale)) or 1.0)


def add_seen(noise: torch.Tensor, x: torch.Tensor, seen: torch.Tensor | None) -> None:
    """noise += x where a key is seen, in place."""
    if seen is None:
        noise += x
    else:
        noise.addcmul_(x, seen)
