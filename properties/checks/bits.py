"""Which claims about bits a declared precision gives up, and what is compared instead."""

from __future__ import annotations

import math

import torch

from flash_attest import oracle
from flash_attest.properties.trial import Trial


def keeps_when_others_change(trial: Trial) -> bool:
    """Whether a result stays the same if what it does not depend on changes. One step of int8 or fp8 serves many rows."""
    return trial.impl.precision.quantize == "none"


def keeps_when_scaled(trial: Trial) -> bool:
    """Whether sums scale with their terms. Those of one tile in float16 may be subnormal, which round in other steps."""
    return trial.impl.precision.tile_sum is None or trial.case.dtype != torch.float16


def keeps_when_moved(trial: Trial) -> bool:
    """Whether powers of four may move between q and softmax_scale. Times the root of the scale, k may be subnormal."""
    return trial.impl.precision.scaled != "both" or trial.case.dtype != torch.float16


def copied_within(trial: Trial) -> float:
    """By how much, relatively, a copied row of v may be off.

    4 roundings in float32, as P at the row maximum may be 1 +- an ulp (exp2 of a fused multiply-add) and out = P v / P; where
    tf32 is declared, its rounding of v (2^-10); where operands are cut off to it, what v and a P just below 1 lose (2^-10
    each; with three products 2^-20, and 2^-20 for the fourth). Nothing in half dtypes, unless P is divided by an l that is
    itself rounded, or is itself cut off to tf32. What `exp` declares counts where the dtype would not round 1 + exp to 1.
    """
    precision, dtype = trial.impl.precision, trial.case.dtype
    u = oracle.roundoff(dtype)
    of_exp = 0.0 if precision.exp <= u / 2 else 2 * precision.exp + 2 * u
    if dtype == torch.float32:
        within = {"operand": 4 * 2.0**-24, "tf32": 2.0**-10, "tf32_cut": 2.0**-9, "tf32x3": 2.0**-18}
        return of_exp + within[precision.multiply]
    if precision.multiply == "tf32_cut" and precision.probabilities == "float32":
        return of_exp + 2.0**-10 + 2 * u
    # the rounding of l, and that of out
    return of_exp + (4 * u if precision.statistics == "operand" else 0.0)


def copied_whatever_rounds(trial: Trial, score: torch.Tensor) -> torch.Tensor:
    """score (b, h, i) of the one key of each row -> (b, i, h, 1): whether P is cast to 1 whatever a float32 score rounds to.

    The exponent score - max may be off by an ulp of the score (a fused multiply-add in base 2), so that P = 1 + x. Up to half
    a roundoff of the dtype P is cast to 1, but is divided by l = 1 + x: out would be off by as much. So in half dtypes
    scores are small enough (2048 in float16) that x is at most a quarter of the roundoff.
    """
    small = torch.ones_like(score, dtype=torch.bool)
    if trial.case.dtype != torch.float32:
        small = score.abs() <= oracle.roundoff(trial.case.dtype) / 4 * 2.0**24
    return small.transpose(1, 2).unsqueeze(-1)


def counted_within(trial: Trial, keys: torch.Tensor) -> torch.Tensor:
    """By how many keys exp(lse) may be off where it counts them: none, unless l and lse are rounded to a half dtype.

    l is rounded after each tile, of 16 keys or more, and lse = ln l as it is stored. (Or unless exp is declared inexact.)
    """
    if trial.impl.precision.statistics != "operand" or trial.case.dtype == torch.float32:
        return (keys * trial.impl.precision.exp + 0.5).floor()
    u, tiles = oracle.roundoff(trial.case.dtype), math.ceil(trial.case.seqlen_k / 16)
    off = keys * torch.expm1(u * (tiles + keys.clamp(min=1.0).log()))
    return (off + 0.5).floor()  # the count is rounded to a whole number
