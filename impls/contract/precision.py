"""The rounding that an implementation declares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# The largest `exp` and `tanh`. With a larger error, the budget's first-order terms no longer
# describe the result.
MOST_OF_EXP = 0.01


@dataclass(frozen=True)
class Precision:
    """The rounding of an implementation, from which oracle/budget.py derives the error budget.

    It is not about range: a sum in float16 that is infinite where the result is not is wrong.

    multiply: "operand" if the products of q k and P v are exact in the dtype of the operands.
        "tf32" if float32 operands are rounded to tf32. "tf32_cut" if they are truncated to it, as a
        matrix unit does with float32 that was not rounded: tl.dot in Triton, unless it gets
        input_precision="ieee". "tf32x3" if a product is three products of parts in tf32.
    accumulate: "float32" if sums are kept in float32, "operand" if they go from tile to tile in the
        dtype of the inputs.
    accumulate_in_backward: the same for dq, dk, dv and dbias, if it differs, as where dq is added
        up in the memory of a half dtype. None if it is `accumulate`.
    probabilities: "operand" if P and dS are cast to the dtype of the inputs before the second
        product, "float32" if not.
    scores: "float32" if S and dP are kept in float32. "operand" if they are rounded to the dtype of
        the inputs, as a matrix product of PyTorch does: q k, its product with the scale, the sum
        with the bias, and dout v.
    merge: "accumulator" if parts of the keys are merged by their running maximum and sum. "lse" if
        they are merged by weights exp(lse_part - lse) computed from float32 lse, as split-KV and
        flash-decoding kernels do.
    parts: the dtype of the partial outs of a merge="lse": "float32", or "operand" for the dtype of
        the inputs.
    scaled: what softmax_scale multiplies: the float32 "scores"; or "q" or "k", which are then
        rounded to their dtype before the product; or "both", each by the root of the scale.
    scaled_in_backward: the same for the backward, if it differs: "k" if the forward multiplies the
        scores and the backward multiplies k by the scale and rounds it. None if it is `scaled`.
    tile_sum: a number of keys, such as 64, if P v is summed in the dtype of the inputs over tiles
        of that many keys, and the tiles are added in float32. None if all of it is summed in
        float32.
    statistics: "float32" if m, l and lse are kept in float32. "operand" if they are kept in the
        dtype of the inputs from tile to tile, of 16 keys or more, and m may be rounded before or
        after P is computed from it; lse is returned as float32 in both cases.
    row_sum: "float32" if l is the sum of P before its cast. "operand" if l is the sum of P after
        its cast to the dtype of the inputs, so that lse has the roundings of P.
    quantize: "int8" or "fp8" (e4m3) if q and k are cast to it for the scores; gradients multiply q
        and k as they are.
    quantize_by: what has a scale of its own: each "tensor", each "head" of a batch, or each "block"
        of rows of a head.
    exp: the largest relative error of P = exp(...) if it exceeds the error of float32, such as
        8.8e-5 for the cubic polynomial of FlashAttention-4.
    tanh: the largest relative error of the tanh of a softcap if it exceeds the error of float32,
        such as 2**-11 for the instruction tanh.approx.
    """

    multiply: Literal["operand", "tf32", "tf32_cut", "tf32x3"] = "operand"
    accumulate: Literal["float32", "operand"] = "float32"
    accumulate_in_backward: Literal["float32", "operand"] | None = None
    probabilities: Literal["operand", "float32"] = "operand"
    scores: Literal["float32", "operand"] = "float32"
    merge: Literal["accumulator", "lse"] = "accumulator"
    parts: Literal["float32", "operand"] = "float32"
    scaled: Literal["scores", "q", "k", "both"] = "scores"
    scaled_in_backward: Literal["scores", "q", "k", "both"] | None = None
    tile_sum: int | None = None
    statistics: Literal["float32", "operand"] = "float32"
    row_sum: Literal["float32", "operand"] = "float32"
    quantize: Literal["none", "int8", "fp8"] = "none"
    quantize_by: Literal["tensor", "head", "block"] = "tensor"
    exp: float = 0.0
    tanh: float = 0.0
