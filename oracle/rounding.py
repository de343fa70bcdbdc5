"""The roundings of a kernel: the unit roundoff of each value, from the declared precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

FLOAT32 = 2.0**-24
# tf32 has 10 explicit bits of mantissa. Truncation loses up to a whole step. tf32x3 cuts a factor
# into x = high + low + rest, with |low| < 2^-10 |x|, |rest| < 2^-20 |x|. The sum high high + high
# low + low high lacks low low and the products of both rests, which is up to 3 2^-20 of a product.
TF32 = {"tf32": 2.0**-11, "tf32_cut": 2.0**-10, "tf32x3": 1.5 * 2.0**-20}
# Float32 numbers below this may be flushed to 0, as the fast exp of GPUs and most vectorised ones
# do.
FLUSH = 2.0**-126


class Accumulator(NamedTuple):
    """The precision of a sum: unit roundoff u of an addition, and the step `tiny` at underflow."""

    u: float
    tiny: float


# Matrix units truncate instead of rounding, always towards 0, so the errors of one score add up.
# The addends of a block of 8 products (Ampere; 16 on Hopper) are aligned with the largest one and
# cut 1 bit (Hopper: 2 bits) below its last bit. The mean error of a block is 8/4 + 1/2 ulp, where
# an ulp is at most 2 u of the partial sum, which on average is half the whole. That gives 5/16 u
# per product (Hopper: 5/32). An H200 has 1/10 to 1/5, depending on the kernel, with scores near
# -160 in float16.
TRUNCATION = 5 / 16
# The largest error of int8, half a step, is 1/254 of the maximum, as int8 is used from -127 to 127.
# e4m3 has 3 bits of mantissa, and 448 is its largest number.
INT8_STEPS = 254.0
FP8 = Accumulator(2.0**-4, 2.0**-10 / 448.0)
# The precision of scores and dP, which are sums over headdim: always float32, in one instruction.
HEADDIM_SUM = Accumulator(FLOAT32, FLUSH)


def roundoff(dtype: torch.dtype) -> float:
    """Return the largest relative error u of rounding to nearest.

    It is 2^-24, 2^-11, 2^-8 for float32, float16, bfloat16.
    """
    return torch.finfo(dtype).eps / 2


def smallest_subnormal(dtype: torch.dtype) -> float:
    """Return the spacing of the numbers next to 0.

    It is 2^-149, 2^-24, 2^-133 for float32, float16, bfloat16.
    """
    info = torch.finfo(dtype)
    return info.smallest_normal * info.eps


@dataclass(frozen=True)
class Units:
    """Unit roundoffs u, and steps `tiny` (the absolute error of a number that underflows).

    The suffixes: _p is P and T, cast before a product; _mul is the factors of a product; _out is
    out, dq, dk, dv as stored, and so the out from which delta is computed. acc: the accumulator of
    the sums over keys, which are continued from tile to tile: out and the row sum l.
    acc_in_backward: the same of dq, dk, dv and dbias, which are sums over keys and over queries.
    """

    u: float  # the unit roundoff of the operands
    tiny: float
    u_p: float
    tiny_p: float
    u_mul: float
    acc: Accumulator
    acc_in_backward: Accumulator
    u_out: float
    tiny_out: float
    matrix: bool  # whether products run on matrix units, which truncate
    narrow_scores: bool  # whether S and dP are rounded to the operands' dtype
    merged: bool  # whether parts are merged by float32 lse
    rounded_parts: bool  # whether the outs of these parts are rounded to the operands' dtype
    scaled: str  # the factor that softmax_scale multiplies: "scores", "q", "k" or "both"
    scaled_in_backward: str  # the same, in the backward
    tile_sum: int | None  # the number of keys that are summed in the operands' dtype
    narrow: bool  # whether m, l and lse are kept in the operands' dtype
    cast_sum: bool  # whether l is the sum of the cast P
    quantize: str  # "none", "int8" or "fp8"
    quantize_by: str
    exp: float  # the relative error of exp beyond float32's
    tanh: float  # the same of tanh, in a softcap; 0 without one
    coarse: bool  # whether the error of an exponent may be so large that exp is not linear in it
    stored: torch.dtype  # the dtype of out


def units(dtype: torch.dtype, precision: object, terms: int = 1, capped: bool = False) -> Units:
    """Return the Units of operands of this dtype. precision has the fields of impls.Precision.

    capped: whether there is a softcap.

    float16 and bfloat16 are exact in tf32, so with these dtypes tf32 rounds only P and T, and only
    if they stay float32. terms: the largest number of products of a sum. Flushing only makes
    probabilities smaller, so n flushed ones add up to n times one error, while n independent
    roundings add up to sqrt(n) times one.
    """
    tf32 = TF32.get(precision.multiply, 0.0)
    cast = torch.float32 if precision.probabilities == "float32" else dtype
    half = dtype != torch.float32
    return Units(
        u=roundoff(dtype),
        tiny=max(smallest_subnormal(dtype), FLUSH),
        u_p=tf32 if tf32 and cast != dtype else roundoff(cast),
        tiny_p=max(smallest_subnormal(cast), FLUSH * terms**0.5),
        u_mul=tf32 if dtype == torch.float32 else 0.0,
        acc=accumulator(dtype, precision.accumulate),
        acc_in_backward=accumulator(dtype, precision.accumulate_in_backward or precision.accumulate),
        u_out=roundoff(dtype),
        tiny_out=max(smallest_subnormal(dtype), FLUSH),
        matrix=bool(tf32) or half,
        narrow_scores=precision.scores == "operand" and half,
        merged=precision.merge == "lse",
        rounded_parts=precision.merge == "lse" and precision.parts == "operand" and half,
        scaled=precision.scaled,
        scaled_in_backward=in_backward(precision),
        tile_sum=precision.tile_sum if half else None,
        narrow=precision.statistics == "operand" and half,
        cast_sum=precision.row_sum == "operand" and half and cast == dtype,
        quantize=precision.quantize,
        quantize_by=precision.quantize_by,
        exp=precision.exp,
        tanh=precision.tanh if capped else 0.0,
        coarse=is_coarse(dtype, precision, capped),
        stored=dtype,
    )


def accumulator(dtype: torch.dtype, kept_in: str) -> Accumulator:
    """Return the Accumulator of sums that are kept in float32, or in the "operand" dtype."""
    sums = dtype if kept_in == "operand" else torch.float32
    return Accumulator(roundoff(sums), max(smallest_subnormal(sums), FLUSH))


def in_backward(precision: object) -> str:
    """Return what softmax_scale multiplies in the backward."""
    return precision.scaled_in_backward or precision.scaled


def is_coarse(dtype: torch.dtype, precision: object, capped: bool = False) -> bool:
    """Return whether scores, or q, k or statistics that many share, are rounded below float32.

    capped: whether there is a softcap, and so tanh counts.
    """
    scaled = {precision.scaled, in_backward(precision)}
    rounded = scaled != {"scores"} or "operand" in (precision.statistics, precision.scores)
    tanh = capped and precision.tanh > 0
    return tanh or precision.quantize != "none" or (rounded and dtype != torch.float32)
