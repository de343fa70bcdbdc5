"""Decides which results must keep their bits, and how far others may differ."""

from __future__ import annotations

import math

import torch

from flash_attest import oracle
from flash_attest.oracle.rounding import units
from flash_attest.properties.cases.support import narrow_statistics
from flash_attest.properties.trial import Trial


def keeps_when_others_change(trial: Trial) -> bool:
    """Return whether a result keeps its bits if only inputs change on which it does not depend.

    With int8 or fp8 it does not: one quantization step serves many rows.
    """
    return trial.impl.precision.quantize == "none"


def shares_steps(trial: Trial, by: tuple[str, ...]) -> bool:
    """Return whether rows share a quantization step with all others of one of these parts."""
    precision = trial.impl.precision
    return precision.quantize != "none" and precision.quantize_by in by


def keeps_when_scaled(trial: Trial) -> bool:
    """Return whether sums scale with their terms.

    Sums in float16 may not scale, of a tile or from tile to tile: a partial sum may be a subnormal
    number, which rounds in other steps, where the sum is none. (Next to a sum of 2^-64 or more, the
    subnormal numbers of float32 and bfloat16 are too small to matter.)
    """
    return not _sums_in_float16(trial)


def sums_stay_finite(trial: Trial, v: torch.Tensor) -> bool:
    """Return whether no sum over v (b, sk, hk, d) overflows in the dtype of the kernel's sums.

    Before l divides them, sums in float16 may be as large as the sum of |v| over all keys.
    """
    return not _sums_in_float16(trial) or bool(v.double().abs().sum(1).max() <= torch.finfo(torch.float16).max)


def _sums_in_float16(trial: Trial) -> bool:
    precision = trial.impl.precision
    narrow = precision.tile_sum is not None or precision.accumulate == "operand"
    return narrow and trial.case.dtype == torch.float16


def keeps_when_moved(trial: Trial) -> bool:
    """Return whether moving powers of four between q and softmax_scale keeps all bits.

    If k is multiplied by the root of the scale, it may become subnormal in float16.
    """
    return trial.impl.precision.scaled != "both" or trial.case.dtype != torch.float16


def copied_within(trial: Trial) -> float:
    """Return the relative error that a copied row of v may have.

    In float32 it is 4 roundings, as P at the row maximum may be 1 +- an ulp (exp2 of a fused
    multiply-add) and out = P v / P. With tf32 it is the rounding of v (2^-10). If operands are
    truncated to tf32, v and a P just below 1 lose 2^-10 each; with three products they lose 2^-20
    each, and the omitted fourth product is another 2^-20. In half dtypes it is 0, unless P is
    divided by an l that is itself rounded, or P is truncated to tf32. The declared error of exp is
    added if the dtype would not round 1 + `exp` to 1.
    """
    precision, dtype = trial.impl.precision, trial.case.dtype
    u = oracle.roundoff(dtype)
    of_exp = 0.0 if precision.exp <= u / 2 else 2 * precision.exp + 2 * u
    if dtype == torch.float32:
        within = {"operand": 4 * 2.0**-24, "tf32": 2.0**-10, "tf32_cut": 2.0**-9, "tf32x3": 2.0**-18}
        return of_exp + within[precision.multiply]
    if precision.multiply == "tf32_cut" and precision.probabilities == "float32":
        return of_exp + 2.0**-10 + 2 * u
    # Add the roundings of l and of out.
    return of_exp + (4 * u if precision.statistics == "operand" else 0.0)


def copied_whatever_rounds(trial: Trial, score: torch.Tensor) -> torch.Tensor:
    """Return (b, i, h, 1): whether P is cast to 1 however a float32 score is rounded.

    score: (b, h, i), of the only key of each row. The exponent score - max may be off by an ulp of
    the score (a fused multiply-add in base 2), so P = 1 + x. If x is at most half a roundoff of the
    dtype, P is cast to 1, but out is then divided by l = 1 + x and has an error of x. So in half
    dtypes the score must be so small (2048 in float16) that x is at most a quarter of the roundoff.
    """
    small = torch.ones_like(score, dtype=torch.bool)
    if trial.case.dtype != torch.float32:
        small = score.abs() <= oracle.roundoff(trial.case.dtype) / 4 * 2.0**24
    return small.transpose(1, 2).unsqueeze(-1)


def counted_within(trial: Trial, keys: torch.Tensor, scores: torch.Tensor | float = 0.0) -> torch.Tensor:
    """Return by how many keys exp(lse - score) may be wrong when it counts keys.

    It is 0 unless exp is declared inexact, parts of the keys are merged by a rounded lse, or l and
    lse are rounded to a half dtype: l up to three times in each tile of 16 keys or more, and lse =
    score + ln l when it is stored. scores: of the keys, each a softcap, so a declared error of tanh
    is also one of the score. Score, maximum and lse are rounded to float32 in each tile.
    """
    precision, tiles = trial.impl.precision, math.ceil(trial.case.seqlen_k / 16)
    score = torch.as_tensor(scores, dtype=torch.float64, device=keys.device).abs()
    of_score = score * (precision.tanh + (tiles + 3) * 2.0**-24)
    if not narrow_statistics(trial.impl, trial.case):
        merges = tiles * 2.0**-24 * (keys.clamp(min=1.0).log() + 1) if precision.merge == "lse" else 0.0
        return (keys * torch.expm1(precision.exp + merges + of_score) + 0.5).floor()
    u = oracle.roundoff(trial.case.dtype)
    off = keys * torch.expm1(u * (3 * tiles + keys.clamp(min=1.0).log() + score) + of_score)
    return (off + 0.5).floor()  # the count is rounded to a whole number


def averaged_within(trial: Trial, count: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Return by how much out times the number of keys may be wrong when it counts keys.

    count, keys: how many keys a column counts, and how many the query sees. All P are 1, or 1/keys,
    and v is 0 or 1, so each error is relative to the count: the casts of P and of out, and at most
    one rounding for each key that is added, or three for each tile in a half dtype. All roundings
    may be alike, so their bounds are added, with the reserve of the linear form.
    """
    case, precision = trial.case, trial.impl.precision
    un, n = units(case.dtype, precision), case.seqlen_k
    tiles = math.ceil(n / 16)
    relative = un.u_out + un.u_p + un.u_mul + (2 * n + 16) * 2.0**-24 + 2 * precision.exp
    if precision.accumulate == "operand":
        relative += 3 * tiles * un.acc.u
    if un.tile_sum is not None:
        relative += min(n, un.tile_sum) * un.u
    if un.narrow:
        relative += (3 * tiles + 1) * un.u
    if trial.x.sinks is not None:  # exp of a sink, which is a logarithm that was rounded
        relative += 2 * (float(trial.x.sinks.abs().max()) + 2) * (un.u if un.narrow else 2.0**-24)
    if un.merged:
        relative += 2 * (math.log(max(n, 1)) + 1) * (un.u if un.narrow else 2.0**-24)
    if un.rounded_parts:
        relative += un.u_out
    return oracle.Z_LIMIT / oracle.Z_WORST * (count * relative + keys * un.tiny_out)
