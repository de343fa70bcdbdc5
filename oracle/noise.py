"""Where the rounding errors of a correct kernel come from, one chunk of queries at a time.

Names are those of attention.py; E_x is the noise of x. In the independent form E is a variance, and a rounding of x to
nearest has E = x^2 u^2 / 3, as its relative error is uniform in [-u, u]; in the linear form E is a bound on |error|,
and a rounding has E = |x| u. Either way noise passes through y = a x as E_y = size(a) E_x with size(a) = a^2 or |a|, and
noises add, so that one derivation serves both. budget.py says when to use which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from .attention import Operands, softmax
from .limits import Z_WORST

FLOAT32 = 2.0**-24
TF32 = 2.0**-11  # 10 explicit bits
# Float32 numbers below this may be flushed to 0: GPUs' fast exp and most vectorised ones do.
FLUSH = 2.0**-126


class Accumulator(NamedTuple):
    """The precision of a sum: unit roundoff u of each addition, and the step tiny where numbers underflow."""

    u: float
    tiny: float


# Matrix units truncate instead of rounding, and always towards 0, so in one score the errors add up. A block of 8 products
# (Ampere; 16 on Hopper) is aligned with the largest addend and cut 1 bit (2) below its last: 8/4 + 1/2 ulp in the mean, an
# ulp being 2 u at most, at partial sums that are half the whole in the mean: 5/16 u per product (5/32). Measured on an H200,
# scores near -160 in float16: 1/10 to 1/5, by kernel.
TRUNCATION = 5 / 16
# One score, or one dP, is a sum over headdim, which one instruction makes in float32 whatever the operands are.
HEADDIM_SUM = Accumulator(FLOAT32, FLUSH)


def roundoff(dtype: torch.dtype) -> float:
    """-> the largest relative error u of rounding to nearest: 2^-24, 2^-11, 2^-8 for float32, float16, bfloat16."""
    return torch.finfo(dtype).eps / 2


def smallest_subnormal(dtype: torch.dtype) -> float:
    """-> the spacing of numbers next to 0: 2^-149, 2^-24, 2^-133 for float32, float16, bfloat16."""
    info = torch.finfo(dtype)
    return info.smallest_normal * info.eps


@dataclass(frozen=True)
class Units:
    """Unit roundoffs u, and steps tiny (the absolute error where a number underflows), for each place that rounds.

    _p: where P and T are cast before a product; _mul: the factors of a product; _out: out, dq, dk, dv as stored, so
    also the out that delta is made from. acc: the accumulator of the sums over keys and over queries, which go from
    tile to tile: out, dq, dk, dv, dbias and the row sum l.
    """

    u_p: float
    tiny_p: float
    u_mul: float
    acc: Accumulator
    u_out: float
    tiny_out: float
    matrix: bool  # whether products run on matrix units, which truncate


def units(dtype: torch.dtype, precision: object, terms: int = 1) -> Units:
    """-> what `precision` (multiply, accumulate, probabilities) means for operands of this dtype.

    float16 and bfloat16 are exact in tf32, so with them it rounds only P and T, and only where they stay float32.
    terms: how many products one sum has at most. Flushed probabilities are all lost to one side, so n of them add up to n
    times one, while n independent roundings add up to sqrt(n) times one.
    """
    tf32 = precision.multiply == "tf32"
    cast = torch.float32 if precision.probabilities == "float32" else dtype
    sums = dtype if precision.accumulate == "operand" else torch.float32
    return Units(
        u_p=TF32 if tf32 and cast != dtype else roundoff(cast),
        tiny_p=max(smallest_subnormal(cast), FLUSH * terms**0.5),
        u_mul=TF32 if tf32 and dtype == torch.float32 else 0.0,
        acc=Accumulator(roundoff(sums), max(smallest_subnormal(sums), FLUSH)),
        u_out=roundoff(dtype),
        tiny_out=max(smallest_subnormal(dtype), FLUSH),
        matrix=tf32 or dtype != torch.float32,
    )


class Independent:
    """Roundings are independent: noise is a variance."""

    linear = False

    @staticmethod
    def size(x):
        return x * x

    @staticmethod
    def add(noise: torch.Tensor, x: torch.Tensor, factor: float) -> None:
        """noise += factor * size(x), in place."""
        noise.addcmul_(x, x, value=factor)

    @staticmethod
    def unit(u: float) -> float:
        """One rounding to nearest, relative to size(x)."""
        return u * u / 3

    @staticmethod
    def steps(n: float) -> float:
        """A few float32 operations, with a joint deviation of sqrt(n) u."""
        return n * FLOAT32**2

    @staticmethod
    def total(n: float, acc: Accumulator, result: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
        """Adding n terms: n roundings of partial sums, which grow to the result or like a random walk of the terms."""
        larger = result * result
        torch.maximum(larger, terms, out=larger)
        return larger.mul_(n * acc.u**2 / 3).add_(n * acc.tiny**2 / 3)

    @staticmethod
    def truncation(n: float) -> float:
        """What a matrix unit loses over n products by truncating, relative to size(x): a bias to one side, not a variance."""
        return (n * TRUNCATION * FLOAT32) ** 2

    @staticmethod
    def lost(probs: torch.Tensor) -> torch.Tensor | None:
        """The P that a float32 sum may lose entirely, and so to one side, else 0; None if there are none."""
        small = probs.masked_fill(probs >= FLOAT32, 0.0)
        # Asking a GPU whether there are any takes longer than to carry them along.
        return small if small.is_cuda or small.any() else None

    @staticmethod
    def sigma(noise: torch.Tensor) -> torch.Tensor:
        return noise.sqrt()


class Linear:
    """Roundings add up at their worst: noise is a bound on the absolute error, and z = Z_WORST says that it is reached.

    Correct kernels reach it. With one query, dv_j = P_j dout is one product, and P_j just above a power of two rounds by
    nearly u_p: z of 6 is no sign of a missing term. The reserve up to Z_LIMIT covers what first order leaves out: products of
    two roundings, below 2 %, and what a machine adds.
    """

    linear = True

    @staticmethod
    def size(x):
        return abs(x)

    @staticmethod
    def add(noise: torch.Tensor, x: torch.Tensor, factor: float) -> None:
        """noise += factor * size(x), in place."""
        noise.add_(x.abs(), alpha=factor)

    @staticmethod
    def unit(u: float) -> float:
        return u

    @staticmethod
    def steps(n: float) -> float:
        """Four deviations of what the independent form allows: the same few operations at their worst."""
        return 4 * n**0.5 * FLOAT32

    @staticmethod
    def total(n: float, acc: Accumulator, result: torch.Tensor, terms: torch.Tensor) -> torch.Tensor:
        """Adding n terms in any order: |error| <= n u sum |term|."""
        return (terms * (n * acc.u)).add_(n * acc.tiny)

    @staticmethod
    def truncation(n: float) -> float:
        """Nothing beyond `total`, which takes n u of every term."""
        return 0.0

    @staticmethod
    def lost(probs: torch.Tensor) -> None:
        """Nothing beyond `total`, either."""
        return None

    @staticmethod
    def sigma(noise: torch.Tensor) -> torch.Tensor:
        return noise / Z_WORST


FORMS = {"independent": Independent, "linear": Linear}


@dataclass(frozen=True)
class Noise:
    """One chunk, (batch, nheads, i, j); e_lse, e_delta, delta (batch, nheads, i, 1); out, e_out (.., i, headdim).

    qk = sum_d size(scale q k) and dov = sum_d size(dout v) are the sizes of the terms of S and dP. lost: the P that sums
    may lose, all to one side (below), None if there are none; lost_delta (batch, nheads, i, 1): what delta then lacks.
    """

    products: torch.Tensor
    probs: torch.Tensor
    size_p: torch.Tensor
    seen: torch.Tensor | None  # None: every key is seen
    qk: torch.Tensor
    e_s: torch.Tensor
    e_out: torch.Tensor | None
    e_lse: torch.Tensor
    out: torch.Tensor
    dp: torch.Tensor | None = None
    delta: torch.Tensor | None = None
    t: torch.Tensor | None = None
    size_t: torch.Tensor | None = None
    dov: torch.Tensor | None = None
    e_delta: torch.Tensor | None = None
    e_t: torch.Tensor | None = None
    lost: torch.Tensor | None = None
    lost_delta: torch.Tensor | None = None


def noise(p: Operands, chunk: slice, form: type, un: Units, of_out: bool = True) -> Noise:
    """-> Noise of the rows in chunk: matrices (batch, nheads, i, j). of_out: whether e_out is wanted.

    score   E_s   = 2 unit(u_mul) qk + total_headdim + truncated_headdim + (size(S) + size(m - S)) steps(1) + steps(4)
            the products, their sum, scaling and adding the bias, subtracting m and then exp, whose argument's absolute
            error is a relative error of P; with a bias also size(scale q k) steps(1), as the bias may cancel it
    out     E_out = sum_j size(P) [size(v - out) E_s + size(v) (unit(u_p) + 2 unit(u_mul))]
                    + sum_j size(v) unit(tiny_p) + total_seqlen_k + size(out) steps(4)
            v - out, because a score that grows takes from the other keys; the cast of P; subnormal P
    lse     E_lse = sum_j size(P) E_s + truncated_headdim of sum_j P |S| + size(lse) steps(1) + seqlen_k unit(acc) + steps(16)
    dP      E_dP  = 2 unit(u_mul) dov + total_headdim
    delta   E_delta = sum_j [size(T) E_s + size(P dP) (unit(u_p) + unit(u_mul)) + size(dP) unit(tiny_p)]
                    + sum_d size(dout) [rest of E_out + size(out) unit(u_out) + unit(tiny_out)] + total_headdim
            delta = sum_d dout out, and out was stored rounded; an error of P moves all of out_i along v_j, so that it
            reaches delta as dP_ij, not as headdim independent errors
    T       E_T   = size(T) (E_s + 2 unit(u_p) + 2 unit(u_mul) + steps(4)) + size(P) E_dP
                    + size(dP - delta) unit(tiny_p) + unit(tiny_p / min(1, |scale|))
            P may be cast before it is multiplied (CUTLASS reads it back from shared memory), T is cast after, and
            before or after it is scaled;
            without the errors of lse and delta: those are shared by a row, and are kept apart

    A term below half an ulp of the sum that it is added to is lost whole, so sums lose terms to one side: those that are
    left behind a row's maximum, where P falls off smoothly (ALiBi), and in all columns of v at once. In the independent
    form, whose roundings are to either side, L = P where P < 2^-24, else 0, is added, with its sign. (Sums of one tile are
    float32 also where the accumulator is narrower, whose own roundings are in total_seqlen_k.)

    out     E_out   += size(sum_j L v)          lse   E_lse += size(sum_j L)
    delta   E_delta += size(sum_d dout sum_j L v)
    """
    size, unit = form.size, form.unit
    seqlen_k, headdim = p.k.shape[2:]
    size_v = size(p.v)
    r = p.products(chunk)
    s = p.mask(r, chunk)
    probs, m, lse = softmax(s)
    size_p = size(probs)

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
    e_s.add_(form.steps(4))
    del s, gap

    moved = size_p * e_s
    out = probs @ p.v
    terms = size_p @ size_v
    row_moved = moved.sum(-1, keepdim=True)
    e_stored = form.total(seqlen_k, un.acc, out, terms) + size(out) * form.steps(4) + terms * unit(un.u_mul)
    lost = form.lost(probs)
    lost_out = None if lost is None else lost @ p.v
    e_out = None
    if of_out:
        if form.linear:
            e_out = moved @ size_v + size(out) * row_moved  # |v - out| <= |v| + |out|: a matrix product again
        else:
            e_out = (moved @ size_v - 2 * out * (moved @ p.v) + size(out) * row_moved).clamp_(min=0.0)
        e_out += e_stored + terms * (unit(un.u_p) + unit(un.u_mul))
        if lost_out is not None:
            e_out += size(lost_out)
        e_out += (size_v.sum(-2, keepdim=True) if seen is None else seen @ size_v) * unit(un.tiny_p)
    dead = lse == float("-inf")
    e_lse = (row_moved + size(lse) * form.steps(1)).add_(seqlen_k * unit(un.acc.u) + form.steps(16))
    if lost is not None:
        e_lse += size(lost.sum(-1, keepdim=True))
    if un.matrix:  # the scores of a row are cut to the same side: P does not see that, lse does
        form.add(e_lse, r.abs().mul_(probs).sum(-1, keepdim=True), form.truncation(headdim))
    e_lse = e_lse.masked_fill(dead, 0.0)
    common = {
        "products": r,
        "probs": probs,
        "size_p": size_p,
        "seen": seen,
        "qk": qk,
        "e_s": e_s,
        "e_out": e_out,
        "e_lse": e_lse,
        "out": out,
        "lost": lost,
    }
    if p.dout is None:
        return Noise(**common)

    dout = p.dout[:, :, chunk]
    dp = dout @ p.v.mT
    delta = (dout * out).sum(-1, keepdim=True)
    from_delta = dp - delta
    t = probs * from_delta
    dov = size(dout) @ size_v.mT
    e_dp = form.total(headdim, HEADDIM_SUM, dp, dov)
    if un.u_mul:
        e_dp.add_(dov, alpha=2 * unit(un.u_mul))
    size_t, size_dp = size(t), size(dp)
    from_probs = (size_t * e_s).addcmul_(size_dp, size_p, value=unit(un.u_p) + unit(un.u_mul))
    _add_seen(from_probs, size_dp.mul_(unit(un.tiny_p)), seen)
    e_stored = e_stored + size(out) * unit(un.u_out) + unit(un.tiny_out)
    e_delta = from_probs.sum(-1, keepdim=True) + (size(dout) * e_stored).sum(-1, keepdim=True)
    e_delta += form.total(headdim, HEADDIM_SUM, delta, (size(dout) * size(out)).sum(-1, keepdim=True))
    lost_delta = None
    if lost is not None:
        lost_delta = (dout * lost_out).sum(-1, keepdim=True)
        e_delta += size(lost_delta)
    e_t = (e_s + (2 * unit(un.u_p) + 2 * unit(un.u_mul) + form.steps(4))).mul_(size_t).addcmul_(size_p, e_dp)
    smallest_t = unit(un.tiny_p / (min(1.0, abs(p.scale)) or 1.0))
    _add_seen(e_t, size(from_delta).mul_(unit(un.tiny_p)).add_(smallest_t), seen)
    return Noise(
        **common, size_t=size_t, dp=dp, delta=delta, t=t, dov=dov, e_delta=e_delta, e_t=e_t, lost_delta=lost_delta
    )


def _add_seen(noise: torch.Tensor, x: torch.Tensor, seen: torch.Tensor | None) -> None:
    """noise += x where a key is seen, in place."""
    if seen is None:
        noise += x
    else:
        noise.addcmul_(x, seen)
