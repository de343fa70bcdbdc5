"""The error budget: how far rounding may take each element of a correct kernel from the oracle.

noise.py derives the noise E of S, P, out, lse, delta and T. This module propagates it through the
products that make the outputs. All elements of row i share the noise of lse and of delta, so in dq
this noise multiplies the row's sum before sizes are taken:

    dq     size(scale) [sum_j E_T size(k) + E_delta size(sum_j P k) + E_lse size(sum_j T k)]
           + total_seqlen_k + size(dq) (steps(4) + truncated_seqlen_k)
    dk     size(scale) sum_i [E_T + size(P) E_delta + size(T) E_lse] size(q)
           + total_(seqlen_q group) + size(dk) (steps(4) + truncated_(seqlen_q group))
    dv     sum_i [size(P) (E_s + E_lse + unit(u_p) + 2 unit(u_mul)) + unit(tiny_p)] size(dout)
           + total_(seqlen_q group) + size(dv) (steps(4) + truncated_(seqlen_q group))
    dbias  E_T + size(P) E_delta + size(T) E_lse, summed over the broadcast dimensions of bias
           + total_(number of summands) + size(dbias) steps(1)

Errors with the same sign in many rows add up over rows with their sign. Sums lose small terms (L in
noise.py), which makes delta wrong, too. The rounding of out is another such error of delta. Each of
m lost terms is below u = 2^-24 of its sum:

    dq     += size(scale sum_j P k D)
    dk     += size(scale sum_i P q D)
    dbias  += size(sum P D)                D_i = sum_d dout [sum_j L v + out - out as stored]
    dv     += size(min(sum_i L dout, m u max(|dv|, root of sum terms^2)))

The two forms:

    independent   size(x) = x^2             unit(u) = u^2/3
                  sigma = sqrt(E)           total_n = n u^2/3 max(result^2, sum terms^2)
    linear        size(x) = |x|             unit(u) = u
                  sigma = E / 6.4           total_n = n u sum |terms|

This is first order in u, so it applies while E_s is well below 1, but not if a score is off by
about 1. If a declared precision makes E_s that large, declared.py derives terms that replace E_s,
and also E_lse in dq, dk, dv and dbias. A rounded k or q adds further terms to dq and dk:

    dq += unit(u) size(scale) sum_j size(T k) + unit(tiny) sum_j size(T)
    dk += unit(u) size(scale) sum_i size(T q) + unit(tiny) sum_i size(T)

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
Through that common sign P's errors affect delta, which noise.py derives.

Float32 operands that are multiplied as tf32 take the linear form in every regime. An element of q
is rounded once for all keys, and an element of k once for all queries, so the scores' errors along
a row or a column are not independent. The linear form is also taken if P is truncated to tf32,
always towards 0, if q or k are scaled in a half dtype or quantised, and if the statistics of a row
are kept in a half dtype.

The linear bound is less sensitive, by about the root of the number of terms. It still shows one
extra key among 100 in the regime flat: lse is off by 0.01, a thousand times the bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from .algebra import FORMS
from .attention import Attention, Operands, operands, sum_broadcast
from .noise import noise
from .rounding import FLOAT32, Units, is_coarse, units
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
    "one_sign": INDEPENDENT,
    "rising": INDEPENDENT,
}


def form_of(regime: str, dtype: torch.dtype, precision: object) -> str:
    """Return the form for inputs of this regime, and operands of this dtype and precision."""
    # P is truncated, always towards 0.
    biased = precision.multiply == "tf32_cut" and precision.probabilities == "float32"
    shared = biased or (precision.multiply != "operand" and dtype == torch.float32)
    return LINEAR if shared or is_coarse(dtype, precision) else FORM_OF_REGIME[regime]


@dataclass(frozen=True)
class Budget:
    """sigma of each output, in its shape, float64; None where the output is None."""

    out: torch.Tensor
    lse: torch.Tensor
    dq: torch.Tensor | None
    dk: torch.Tensor | None
    dv: torch.Tensor | None
    dbias: torch.Tensor | None


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
    p, bias = operands(q, k, v, variant, dout), variant.bias
    un = units(q.dtype, precision, max(q.shape[:3].numel(), k.shape[1]))
    backward = dout is not None
    seqlen_k = p.k.shape[2]
    e_out, e_lse = torch.zeros_like(p.q), p.q.new_zeros(p.q.shape[:3])
    e_dq = torch.zeros_like(p.q) if backward else None
    # The noise of dk and dv, and the sizes of their terms.
    e_dk, terms_dk, e_dv, terms_dv = (torch.zeros_like(p.k) if backward else None for _ in range(4))
    e_dbias, terms_dbias = (
        torch.zeros_like(bias, dtype=torch.float64) if backward and bias is not None else None for _ in range(2)
    )
    # dk and dv of each query head, which kernels may store before they sum a group, as FA2 does.
    dk_heads, dv_heads = (torch.zeros_like(p.k) if backward and p.group > 1 else None for _ in range(2))
    # Errors that are added up with their signs: lost terms, errors of lse that rows share, and
    # truncated products.
    lost_dk, lost_dv, lost_dbias = (None if e is None else torch.zeros_like(e) for e in (e_dk, e_dv, e_dbias))
    shared_dk, shared_dv, shared_dbias = (None if e is None else torch.zeros_like(e) for e in (e_dk, e_dv, e_dbias))
    cut_dk, cut_dbias = (None if e is None else torch.zeros_like(e) for e in (e_dk, e_dbias))
    size_k = size(p.k) if backward else None
    subnormal = p.k.new_zeros(*p.k.shape[:3], 1)  # the sizes of T, summed where the scaled q may be subnormal
    scaled_tiny = algebra.unit(un.tiny) * (size(math.sqrt(abs(p.scale))) if un.scaled_in_backward == "both" else 1.0)
    size_scale = size(p.scale)

    def cut(n: int) -> float:
        return algebra.truncation(n) if un.matrix else 0.0

    # Sum the noise of all rows, chunk by chunk.
    for chunk in p.chunks():
        n = noise(p, chunk, algebra, un)
        e_out[:, :, chunk], e_lse[:, :, chunk] = n.e_out, n.e_lse.squeeze(-1)
        if not backward:
            continue
        tk, pk = n.t @ p.k, n.probs @ p.k
        dq_rows, dq_terms = p.scale * tk, size_scale * (n.size_t @ size_k)
        e_dq[:, :, chunk] = (
            size_scale * (n.e_t @ size_k + size(pk) * n.e_delta + size(tk) * n.e_norm)
            + algebra.total(seqlen_k, un.acc, dq_rows, dq_terms)
            + size(dq_rows) * (algebra.steps(4) + cut(seqlen_k))
        )
        if n.lost_delta is not None:  # out of one key that takes nearly all the weight is rounded to v in every column
            e_dq[:, :, chunk] += size_scale * size(pk * n.lost_delta)
        if un.scaled_in_backward in ("k", "both"):  # dq = T k uses the rounded k
            e_dq[:, :, chunk] += dq_terms * algebra.unit(un.u) + n.size_t.sum(-1, keepdim=True) * scaled_tiny
        size_q, size_dout = size(p.q[:, :, chunk]), size(p.dout[:, :, chunk])
        e_t = torch.addcmul(n.e_t, n.size_p, n.e_delta).addcmul_(n.size_t, n.e_norm)
        e_dk += e_t.mT @ size_q
        terms_dk += n.size_t.mT @ size_q
        if un.scaled_in_backward in ("q", "both"):  # dk = T^T q uses the rounded q
            e_dk += (n.size_t.mT @ size_q) * algebra.unit(un.u)
            subnormal += n.size_t.sum(-2).unsqueeze(-1)
        e_dv += _of_dv(n, un, algebra).mT @ size_dout
        terms_dv += n.size_p.mT @ size_dout
        if dk_heads is not None:
            dk_heads += p.scale * (n.t.mT @ p.q[:, :, chunk])
            dv_heads += n.probs.mT @ p.dout[:, :, chunk]
        where = chunk if bias is not None and bias.shape[2] > 1 else slice(None)
        if e_dbias is not None:
            e_dbias[:, :, where] += sum_broadcast(e_t, bias)
            terms_dbias[:, :, where] += sum_broadcast(n.size_t, bias)
        if n.lost is not None:
            lost_dv += n.lost.mT @ p.dout[:, :, chunk]
        if n.shared is not None:
            shared_dv += (n.probs * n.shared).mT @ p.dout[:, :, chunk]
        by_lse = None if n.shared is None else n.t * n.shared
        by_delta = None if n.lost_delta is None else n.probs * n.lost_delta
        for error_of_t, of_dk, of_dbias in (
            (by_delta, lost_dk, lost_dbias),
            (n.cut_t, cut_dk, cut_dbias),
            (by_lse, shared_dk, shared_dbias),
        ):
            if error_of_t is not None:
                of_dk += p.scale * (error_of_t.mT @ p.q[:, :, chunk])
                if of_dbias is not None:
                    of_dbias[:, :, where] += sum_broadcast(error_of_t, bias)

    def sigma(noise_of: torch.Tensor | None, heads_first: bool = True) -> torch.Tensor | None:
        if noise_of is None:
            return None
        return algebra.sigma(noise_of.transpose(1, 2) if heads_first else noise_of)

    # Add the errors of the sums over rows and over the heads of a group.
    if backward:
        n_terms = p.q.shape[2] * p.group
        e_dk *= size_scale
        e_dk += subnormal * scaled_tiny
        if dk_heads is not None:
            e_dk += size(dk_heads) * algebra.unit(un.u_out) + algebra.unit(un.tiny_out)
            e_dv += size(dv_heads) * algebra.unit(un.u_out) + algebra.unit(un.tiny_out)
        e_dk = _summed(p, algebra, un, n_terms, want.dk, e_dk, size_scale * terms_dk)
        e_dv = _summed(p, algebra, un, n_terms, want.dv, e_dv, terms_dv)
        e_dk += size(p.sum_group(lost_dk)) + size(p.sum_group(cut_dk)) + size(p.sum_group(shared_dk))
        e_dv += size(p.sum_group(shared_dv))
        most = n_terms * FLOAT32 * torch.maximum(want.dv.transpose(1, 2).abs(), p.sum_group(terms_dv).sqrt())
        e_dv += size(torch.minimum(p.sum_group(lost_dv).abs(), most))
        e_dk += size(want.dk.transpose(1, 2)) * cut(n_terms)
        e_dv += size(want.dv.transpose(1, 2)) * cut(n_terms)
    if e_dbias is not None:
        broadcast = p.q.shape[:3].numel() // max(1, bias.shape[:3].numel())
        if broadcast > 1:
            e_dbias += algebra.total(broadcast, un.acc, want.dbias, terms_dbias)
        e_dbias += size(want.dbias) * algebra.steps(1) + size(lost_dbias) + size(cut_dbias) + size(shared_dbias)
    return Budget(
        out=sigma(e_out),
        lse=sigma(e_lse, heads_first=False),
        dq=sigma(e_dq),
        dk=sigma(e_dk),
        dv=sigma(e_dv),
        dbias=sigma(e_dbias, heads_first=False),
    )


def _of_dv(n, un: Units, algebra: type) -> torch.Tensor:
    """Return the noise (batch, nheads, i, j) of P in dv. P is computed from S and lse, and cast."""
    e_p = (n.e_s + n.e_norm).add_(algebra.unit(un.u_p) + 2 * algebra.unit(un.u_mul)).mul_(n.size_p)
    tiny = algebra.unit(un.tiny_p)
    return e_p.add_(tiny) if n.seen is None else e_p.add_(n.seen, alpha=tiny)


def _summed(
    p: Operands,
    algebra: type,
    un: Units,
    n: int,
    result: torch.Tensor,
    noise_of: torch.Tensor,
    terms: torch.Tensor,
) -> torch.Tensor:
    """noise_of, terms (batch, nheads, seqlen_k, headdim) -> noise of sums (batch, nheads_k, ...).

    n: the number of terms in a sum, for the errors of adding them.
    """
    result = result.transpose(1, 2)
    noise_of = p.sum_group(noise_of) + algebra.total(n, un.acc, result, p.sum_group(terms))
    return noise_of + algebra.size(result) * algebra.steps(4)
