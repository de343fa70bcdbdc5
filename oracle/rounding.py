"""What a kernel rounds, and to what: the unit roundoff u of each place where the declared precision rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

FLOAT32 = 2.0**-24
# 10 explicit bits; cut off, up to a whole step is lost. tf32x3: a factor is cut into x = high + low + rest, with
# |low| < 2^-10 |x|, |rest| < 2^-20 |x|; high high + high low + low high lacks both rests and low low: 3 2^-20 of a product.
TF32 = {"tf32": 2.0**-11, "tf32_cut": 2.0**-10, "tf32x3": 1.5 * 2.0**-20}
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
# Half a step of int8, which is from -127 to 127 times a scale; e4m3 has 3 bits of mantissa, and 448 is its largest number.
INT8_STEPS = 254.0
FP8 = Accumulator(2.0**-4, 2.0**-10 / 448.0)
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

    u: float  # of the operands
    tiny: float
    u_p: float
    tiny_p: float
    u_mul: float
    acc: Accumulator
    u_out: float
    tiny_out: float
    matrix: bool  # whether products run on matrix units, which truncate
    merged: bool  # whether parts are merged by float32 lse
    scaled: str  # what softmax_scale multiplies: "scores", "q", "k" or "both"
    tile_sum: int | None  # how many keys are summed in the operands' dtype
    narrow: bool  # whether m, l and lse are kept in the operands' dtype
    quantize: str  # "none", "int8" or "fp8"
    quantize_by: str
    exp: float  # the relative error of exp beyond that of float32
    coarse: bool  # whether the error of an exponent may be so large that exp is not linear in it
    stored: torch.dtype  # of out


def units(dtype: torch.dtype, precision: object, terms: int = 1) -> Units:
    """-> what `precision` (impls.Precision, or an object with its fields) means for operands of this dtype.

    float16 and bfloat16 are exact in tf32, so with them it rounds only P and T, and only where they stay float32.
    terms: how many products one sum has at most. Flushed probabilities are all lost to one side, so n of them add up to n
    times one, while n independent roundings add up to sqrt(n) times one.
    """
    tf32 = TF32.get(precision.multiply, 0.0)
    cast = torch.float32 if precision.probabilities == "float32" else dtype
    sums = dtype if precision.accumulate == "operand" else torch.float32
    half = dtype != torch.float32
    return Units(
        u=roundoff(dtype),
        tiny=max(smallest_subnormal(dtype), FLUSH),
        u_p=tf32 if tf32 and cast != dtype else roundoff(cast),
        tiny_p=max(smallest_subnormal(cast), FLUSH * terms**0.5),
        u_mul=tf32 if dtype == torch.float32 else 0.0,
        acc=Accumulator(roundoff(sums), max(smallest_subnormal(sums), FLUSH)),
        u_out=roundoff(dtype),
        tiny_out=max(smallest_subnormal(dtype), FLUSH),
        matrix=bool(tf32) or half,
        merged=precision.merge == "lse",
        scaled=precision.scaled,
        tile_sum=precision.tile_sum if half else None,
        narrow=precision.statistics == "operand" and half,
        quantize=precision.quantize,
        quantize_by=precision.quantize_by,
        exp=precision.exp,
        coarse=is_coarse(dtype, precision),
        stored=dtype,
    )


def is_coarse(dtype: torch.dtype, precision: object) -> bool:
    """Whether q, k, or the statistics of a row are rounded to less than float32, once for many scores."""
    rounded = precision.scaled != "scores" or precision.statistics == "operand"
    return precision.quantize != "none" or (rounded and dtype != torch.float32)
