"""The error budget: how far rounding may take each element of a correct kernel from the oracle.

noise.py derives the noise E of S, P, out, lse, delta, T and U, stage by stage. This module
propagates it through the products that make the outputs. All elements of row i share the noise of
lse and of delta, so in dq this noise multiplies the row's sum before sizes are taken. f is the
slope of the softcap; without one, f = 1 and U = T:

    dq     size(scale) [sum_j E_U size(k) + E_delta size(sum_j P f k) + E_lse size(sum_j U k)]
           + total_seqlen_k + size(dq) (steps(4) + truncated_seqlen_k)
    dk     size(scale) sum_i [E_U + size(P f) E_delta + size(U) E_lse] size(q)
           + total_(seqlen_q group) + size(dk) (steps(4) + truncated_(seqlen_q group))
    dv     sum_i [size(P) (E_s + E_lse + unit(u_p) + 2 unit(u_mul)) + unit(tiny_p)] size(dout)
           + total_(seqlen_q group) + size(dv) (steps(4) + truncated_(seqlen_q group))
    dbias  E_T + size(P) E_delta + size(T) E_lse, summed over the broadcast dimensions of bias
           + total_(number of summands) + size(dbias) steps(1)
    dsink  in sinks.py

Errors with the same sign in many rows add up over rows with their sign. Sums lose small terms (L in
noise_out.py), which makes delta wrong, too. The rounding of out is another such error of delta.
Each of m lost terms is below u = 2^-24 of its sum:

    dq     += size(scale sum_j P f k D)
    dk     += size(scale sum_i P f q D)    dsink += size(sum P_sink D)
    dbias  += size(sum P D)                D_i = sum_d dout [sum_j L v + out - out as stored]
    dv     += size(min(sum_i L dout, m u max(|dv|, root of sum terms^2))) + size(sum_i F dout)

F are the elements of P that a cast to float16 flushes (sinks.py, where U may be flushed, too). A
key far below the others of each row has only such elements.

The two forms:

    independent   size(x) = x^2             unit(u) = u^2/3
                  sigma = sqrt(E)           total_n = n u^2/3 max(result^2, sum terms^2)
    linear        size(x) = |x|             unit(u) = u
                  sigma = E / 6.4           total_n = n u sum |terms|

This is first order in u, so it applies while E_s is well below 1, but not if a score is off by
about 1. If a declared precision makes E_s that large, declared.py derives terms that replace E_s,
and also E_lse in dq, dk, dv and dbias. A rounded k or q adds further terms to dq and dk:

    dq += unit(u) size(scale) sum_j size(U k) + unit(tiny) sum_j size(U)
    dk += unit(u) size(scale) sum_i size(U q) + unit(tiny) sum_i size(U)

The form is independent if inputs are random numbers. Rounding errors are then practically
independent, their sum grows with the root of their number, and the budget is tight: a correct
kernel's rms error is 0.2 to 1 times the budget. The form is linear if inputs are structured,
because roundings then repeat:

- flat: all P are nearly 1/n, so all are rounded by the same amount to the same side, and n such
  errors add up to n times one.
- exact: inputs are small integers, so there are only a few different scores and roundings of P.
  (Sums are exact in this regime, so a law that can compare bits should do so and needs no budget.)
- selecting: queries that select no key have q = 0, so their rows are flat. (If one key wins, bits
  are compared.)

The other regimes are independent. spread, peaked, shifted_down, shifted_up, uneven and large have
random scores, so roundings are random, too. The formulas above keep errors that a row shares (of m,
lse, delta) apart. In the regimes mean and one_sign, values share a sign but their roundings do not.
Through that common sign P's errors affect delta (noise_backward.py).

Float32 operands that are multiplied as tf32 take the linear form in every regime. An element of q
is rounded once for all keys, and an element of k once for all queries, so the scores' errors along
a row or a column are not independent. The linear form is also taken if P is truncated to tf32,
always towards 0, if q or k are scaled in a half dtype or quantised, if the statistics of a row are
kept in a half dtype, and if a softcap has a declared error of tanh, which equal scores share. A
softcap below the size of the scores makes many scores equal, so then the form is linear, too. It
also is with one far above the differences of a row's scores: a tanh that is computed from
exponentials rounds next to 1, and for arguments that differ little alike.

The linear bound is less sensitive, by about the root of the number of terms. It still shows one
extra key among 100 in the regime flat: lse is off by 0.01, a thousand times the bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from .algebra import FORMS
from .attention import Attention, Operands, operands
from .noise import Noise, noise
from .rounding import Units, is_coarse, units
from .sinks import dsink_rows
from .sums import BroadcastSum, SumOfProducts
from .variant import Variant

INDEPENDENT, LINEAR = "independent", "linear"
FORM_OF_REGIME = {
    "spread": INDEPENDENT,
    "peaked": INDEPENDENT,
    "flat": LINEAR,
    "shifted_down": INDEPENDENT,
    "shifted_up": INDEPENDENT,
    "large": INDEPENDENT,
    "exact": LINEAR,
    "selecting": LINEAR,
    "mean": INDEPENDENT,
    "uneven": INDEPENDENT,
    "rising": INDEPENDENT,
    "one_sign": INDEPENDENT,
}
# Scores of other regimes are about 1. A softcap below the size of scores makes many of them equal.
# A GPU interpolates exp in a table of about 64 entries, so with a softcap FAR above the differences
# of a row's scores, all its tanh have nearly one error. Scores of other regimes differ by about 1,
# also where all of a row are 160.
FAR = 64.0
SPREAD_OF_SCORES = {"peaked": 6.0, "large": 100.0}
SIZE_OF_SCORES = {
    "one_sign": 3.4,  # those of a row differ by 1
    "peaked": 6.0,
    "large": 100.0,
    "shifted_down": 160.0,
    "shifted_up": 160.0,
    "uneven": 160.0,
    "rising": 160.0,
}


def form_of(regime: str, dtype: torch.dtype, precision: object, softcap: float | None = None) -> str:
    """Return the form for inputs of this regime, and operands of this dtype and precision."""
    size, spread = SIZE_OF_SCORES.get(regime, 1.0), SPREAD_OF_SCORES.get(regime, 1.0)
    if softcap is not None and not size <= softcap <= FAR * spread:
        return LINEAR
    # P is truncated, always towards 0.
    biased = precision.multiply == "tf32_cut" and precision.probabilities == "float32"
    shared = biased or (precision.multiply != "operand" and dtype == torch.float32)
    return LINEAR if shared or is_coarse(dtype, precision, softcap is not None) else FORM_OF_REGIME[regime]


@dataclass(frozen=True)
class Budget:
    """sigma of each output, in its shape, float64; None where the output is None."""

    out: torch.Tensor
    lse: torch.Tensor
    dq: torch.Tensor | None = None
    dk: torch.Tensor | None = None
    dv: torch.Tensor | None = None
    dbias: torch.Tensor | None = None
    dsink: torch.Tensor | None = None


def budget(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    variant: Variant,
    want: Attention,
    *,
    dout: torch.Tensor | None = None,
    dlse: torch.Tensor | None = None,
    precision: object,
    form: str = INDEPENDENT,
) -> Budget:
    """Return sigma of each output of `want`, in the shape of the output.

    The arguments are those of `attention`, and `want` is its result. Operands and outputs have q's
    dtype. precision: an object with the fields of impls.Precision. form: "independent" or "linear",
    see the top of this file.
    """
    algebra = FORMS[form]
    size = algebra.size
    p, bias = operands(q, k, v, variant, dout, dlse), variant.bias
    un = units(q.dtype, precision, max(q.shape[:3].numel(), k.shape[1]), variant.softcap is not None)
    e_out, e_lse = p.zeros_like_out(), p.q.new_zeros(p.q.shape[:3])
    backward, rows = p.dout is not None, p.q.shape[:3].numel()
    if backward:
        e_dq = torch.zeros_like(p.q)
        dk, dv = SumOfProducts(p, un, algebra, p.k, p.q, p.scale), SumOfProducts(p, un, algebra, p.v, p.dout)
        dbias = None if bias is None else BroadcastSum(bias, un, algebra)
        dsink = None if p.sinks is None else BroadcastSum(p.sinks[None], un, algebra)
        size_k = size(p.k)
        subnormal = p.k.new_zeros(*p.k.shape[:3], 1)  # the sizes of U, summed where the scaled q may be subnormal
    for chunk in p.chunks():
        n = noise(p, chunk, algebra, un)
        e_out[:, :, chunk], e_lse[:, :, chunk] = n.out.noise, n.lse.noise.squeeze(-1)
        if not backward:
            continue
        e_dq[:, :, chunk] = _of_dq(p, n, un, algebra, size_k)
        e_u, signed = n.with_shared(n.u), n.signed(n.u)
        sizes = dk.add(chunk, e_u, n.u.size, n.u.value, {**signed, "flushed": n.flushed})
        if un.scaled_in_backward in ("q", "both"):  # dk = U^T q uses the rounded q
            dk.noise += sizes * algebra.unit(un.u)
            subnormal += n.u.size.sum(-2).unsqueeze(-1)
        if dbias is not None:
            if n.t is not n.u:
                e_u, signed = n.with_shared(n.t), n.signed(n.t)
            dbias.add(chunk, e_u, n.t.size, signed)
        del e_u, signed  # each of these matrices is large
        shared = None if n.lse.shared is None else n.scores.probs * n.lse.shared
        signed = {"small": n.lost, "shared": shared, "flushed": algebra.flushed(n.scores.probs, un.tiny_p)}
        dv.add(chunk, _of_dv(n, un, algebra), n.scores.size_p, n.scores.probs, signed)
        if dsink is not None:
            sink, of_delta = n.scores.sink, n.delta
            e_rows = dsink_rows(sink, of_delta.value, of_delta.noise, n.lse.norm, rows, algebra, un)
            dsink.add(chunk, e_rows, size(sink.weight * of_delta.value), n.signed_dsink())

    def heads_last(noise_of: torch.Tensor) -> torch.Tensor:
        return algebra.sigma(noise_of.transpose(1, 2))

    sigma = {"out": heads_last(e_out), "lse": algebra.sigma(e_lse)}
    if backward:
        dk.noise *= size(p.scale)
        dk.terms *= size(p.scale)
        dk.noise += subnormal * _of_subnormal(p, un, algebra)
        sigma |= {"dq": heads_last(e_dq), "dk": heads_last(dk.total(want.dk)), "dv": heads_last(dv.total(want.dv))}
        if dbias is not None:
            sigma["dbias"] = algebra.sigma(dbias.total(want.dbias, rows, algebra.steps(1)))
        if dsink is not None:
            of_heads = dsink.total(want.dsink[:, None, None][None], rows, algebra.steps(4))
            sigma["dsink"] = algebra.sigma(of_heads.flatten())
    return Budget(**sigma)


def _of_dq(p: Operands, n: Noise, un: Units, algebra: type, size_k: torch.Tensor) -> torch.Tensor:
    """Return the noise (batch, nheads, i, headdim) of dq."""
    size, size_scale, seqlen_k = algebra.size, algebra.size(p.scale), p.k.shape[2]
    uk, pk = n.u.value @ p.k, n.u.of_delta @ p.k
    dq, terms = p.scale * uk, size_scale * (n.u.size @ size_k)
    cut = algebra.truncation(seqlen_k) if un.matrix else 0.0
    noise_of = (
        size_scale * (n.u.noise @ size_k + size(pk) * n.delta.noise + size(uk) * n.lse.norm)
        + algebra.total(seqlen_k, un.acc_in_backward, dq, terms)
        + size(dq) * (algebra.steps(4) + cut)
    )
    if n.flushed is not None:
        noise_of += size_scale * size(n.flushed @ p.k)
    if n.delta.lost is not None:  # out of one key that takes nearly all the weight is rounded to v in every column
        noise_of += size_scale * size(pk * n.delta.lost)
    if un.scaled_in_backward in ("k", "both"):  # dq = U k uses the rounded k
        noise_of += terms * algebra.unit(un.u) + n.u.size.sum(-1, keepdim=True) * _of_subnormal(p, un, algebra)
    return noise_of


def _of_subnormal(p: Operands, un: Units, algebra: type) -> float:
    """Return the noise of a scaled q or k that may be subnormal."""
    return algebra.unit(un.tiny) * (algebra.size(math.sqrt(abs(p.scale))) if un.scaled_in_backward == "both" else 1.0)


def _of_dv(n: Noise, un: Units, algebra: type) -> torch.Tensor:
    """Return the noise (batch, nheads, i, j) of P in dv. P is computed from S and lse, and cast."""
    e_p = (n.again + n.lse.norm).add_(algebra.unit(un.u_p) + 2 * algebra.unit(un.u_mul)).mul_(n.scores.size_p)
    tiny, seen = algebra.unit(un.tiny_p), n.scores.seen
    return e_p.add_(tiny) if seen is None else e_p.add_(seen, alpha=tiny)
