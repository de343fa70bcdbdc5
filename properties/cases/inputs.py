"""Builds the tensors of a case. Their distribution matters more for finding bugs than tolerances.

spread        scores with a standard deviation of 1, v and dout randn: the ordinary case
peaked        scores with a standard deviation of 6: a few keys take nearly all the weight
flat          scores with a standard deviation of 0.01: all keys have nearly the same weight, so
              one key too many or too few shows
shifted_down  every score near -160 (lse < -90): exp(0 - lse) of a forgotten padding key overflows
shifted_up    every score near +160: exp without the row maximum overflows
large         |x| <= 10
exact         small integers: sums are exact, so bits can be compared
selecting     one key wins by more than 64, so out is a row of v, bit for bit
mean          v and dout around 1: sums do not cancel
uneven        each row's scores lie near -160, 0 or 160, and rise or fall along the keys: rows of
              one tile have very different maxima, and a row's maximum moves from tile to tile
rising        scores rise along the keys, so a row's maximum moves in every tile
one_sign      k, v and dout are large and positive, and keys with a larger v have a larger k: dS k
              exceeds 65504, the largest float16, before it is scaled, but no result does. With an
              odd seed v is much larger than dout, and so does P v before it is divided by l

Every tensor depends only on the case and the device, not on earlier draws.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from flash_attest.impls.contract.tensors import Inputs
from flash_attest.oracle import ALIGNMENTS
from flash_attest.properties.cases.bias_masks import hidden_by_bias, may_have_empty_rows, rows_without_keys
from flash_attest.properties.cases.case import ADDED, BOOLEAN, Case
from flash_attest.properties.cases.features import mask_of
from flash_attest.properties.cases.hidden_keys import shown_to
from flash_attest.properties.cases.random_tensors import RandomTensors

SHIFT = 160.0  # how far the shifted regimes move every score; exp(-160) is 0 in float32
RISE = (0.5, 6.0)  # how far scores of the regimes uneven and rising rise in 16 keys; several keys still have a weight
HIGHEST = 4.0  # scores of the regime rising reach at most this many times SHIFT
HIGH = 100.0  # how far sinks of this kind lie above every score; exp(-100) is below the smallest float32
LARGEST_RESULT = 2.0**15  # of the regime one_sign, half of the largest float16
LARGEST_V = 2.0**14  # of the same regime, before the level of a key: three keys of one score exceed 65504
LARGEST_DP, LARGEST_DS_K = 2.0**14, 2.0**18  # of the same regime: no float16 holds the second, where scale <= 1/8
GAP = 64.0  # the lead of the winning score in the regime selecting; exp(-64) is below half an ulp in every dtype
WINS = 128.0  # the lead that a law gives to one key; next to 1, exp(-128) vanishes in every dtype
# Mask values that callers use instead of -inf. A running maximum that starts at -1e4 is wrong for
# lower scores. Near -1e9, float32 scores would be multiples of 64, and the budget of a row with
# only such keys would allow any result.
FINITE_MASKS = (-1e4, -3e4)


def build(case: Case, device: str | torch.device) -> Inputs:
    """Return q (b, sq, h, d), dout (b, sq, h, dv), k (b, sk, hk, d), v (b, sk, hk, dv), bias
    (b | 1, h | 1, 1 | sq, sk) or None, sinks (h) or None, dlse (b, h, sq) or None, and block_mask
    or kv_indices of hidden keys.

    All are contiguous, but for a v that is the first columns of k.
    """
    random = RandomTensors(case, device)
    q_shape = (case.batch, case.seqlen_q, case.nheads, case.headdim)
    k_shape = (case.batch, case.seqlen_k, case.nheads_k, case.headdim)
    q, k = _scores(case, random, q_shape, k_shape)
    v = k if case.shared_kv else _values(case, random, "v", (*k_shape[:3], case.headdim_v))
    dout = _values(case, random, "dout", (*q_shape[:3], case.headdim_v))
    bias = _bias(case, random) if case.bias else None
    q, k, v, dout = (tensor.to(case.dtype) for tensor in (q, k, v, dout))
    dtype = torch.bool if case.bias in BOOLEAN else case.bias_dtype
    bias = None if bias is None else bias.to(dtype)
    v = k[..., : case.headdim_v] if case.shared_kv else v
    dlse = _dlse(case, device) if case.dlse else None
    x = Inputs(q=q, k=k, v=v, dout=dout, bias=bias, dlse=dlse, **shown_to(case, device))
    x = x.with_(sinks=_sinks(case, x)) if case.sinks else x
    return x.with_(dlse=_dlse_where_defined(case, x)) if case.dlse and case.sinks == "some_off" else x


def _scores(case: Case, random: RandomTensors, q_shape: tuple, k_shape: tuple) -> tuple[torch.Tensor, torch.Tensor]:
    regime = case.regime
    if regime == "selecting":
        return _selecting(case, random, q_shape, k_shape)
    if regime == "exact":
        return random.integers(q_shape, -3, 3), random.integers(k_shape, -3, 3)
    if regime == "large":
        return random.uniform(q_shape, -10, 10), random.uniform(k_shape, -10, 10)
    if regime == "one_sign":
        large = _Large.of(case)
        k = random.uniform(k_shape, 0.9, 1.1) * _levels(case, random.device) * large.k
        per_unit = abs(case.scale) * math.sqrt(case.headdim) * large.k * LEVELS_SPREAD
        return random.normal(q_shape, 1.0 / (per_unit or 1.0)), k
    if regime not in ("shifted_down", "shifted_up", "uneven", "rising"):
        # The standard deviation of the scores, for any headdim and scale.
        spread = {"peaked": 6.0, "flat": 0.01}.get(regime, 1.0)
        per_unit = abs(case.scale) * math.sqrt(case.headdim) or 1.0
        return random.normal(q_shape, spread / per_unit), random.normal(k_shape)
    q, k = random.normal(q_shape, 0.5), random.normal(k_shape, 0.5)
    if case.scale:
        # q and k each get a component along the same direction. The product of the two is SHIFT /
        # scale.
        along = min(math.sqrt(SHIFT / abs(case.scale) / case.headdim), 200.0)
        sign = math.copysign(1.0, case.scale)
        if regime in ("uneven", "rising"):
            level = random.integers((*q_shape[:3], 1), -1, 1)
            rise = random.uniform((1,), *RISE) / 16 / SHIFT * torch.arange(case.seqlen_k, device=random.device)
            if regime == "rising":
                return q + along, k + sign * along * rise.clamp(max=HIGHEST)[:, None, None]
            return q + level * along, k + sign * along * (1 + rise.clamp(max=1.0))[:, None, None]
        sign = sign if regime == "shifted_up" else -sign
        q, k = q + along, k + sign * along
    return q, k


LEVELS = (0.5, 1.5)  # of keys in the regime one_sign
LEVELS_SPREAD = 0.3  # their standard deviation


def _levels(case: Case, device: torch.device | str) -> torch.Tensor:
    """Return a factor (b, sk, hk, 1) for each key of the regime one_sign, which k and v share."""
    return RandomTensors(case, device, "levels").uniform((case.batch, case.seqlen_k, case.nheads_k, 1), *LEVELS)


class _Large(NamedTuple):
    """The size of k, v and dout in the regime one_sign.

    dP = dout v grows with the level of its key, and so does k. So a row's sum of dS k is the
    covariance of dP and k under P, at most a quarter of their ranges' product.
    """

    k: float
    v: float
    dout: float

    @classmethod
    def of(cls, case: Case) -> _Large:
        """Return sizes with which no dq, dv or dbias exceeds LARGEST_RESULT by much."""
        rows = max(1, case.seqlen_q)
        dout = min(16.0, LARGEST_RESULT / (rows * case.nheads // case.nheads_k))  # dv is a sum over these rows
        dp, most = LARGEST_DP, 256.0
        if case.seed % 2:
            most = LARGEST_V
            dout = min(dout, dp / (case.headdim_v * most))
        # dbias is a sum of dS over the rows that share the bias.
        if case.bias in ADDED and case.bias_dtype == torch.float16:
            share = case.batch * case.nheads * rows / math.prod(case.bias_shape[:2]) / max(1, case.bias_shape[2])
            dp = min(dp, 4 * LARGEST_RESULT / share)
        v = min(most, dp / (case.headdim_v * dout))
        dp = v * case.headdim_v * dout
        ds_k = min(LARGEST_DS_K, LARGEST_RESULT / (abs(case.scale) or 1.0))
        # A sink is one more key, with k = v = 0, so it widens both ranges.
        return cls(k=min(256.0, (1 if case.sinks else 4) * ds_k / dp), v=v, dout=dout)


def _selecting(case: Case, random: RandomTensors, q_shape: tuple, k_shape: tuple) -> tuple[torch.Tensor, torch.Tensor]:
    """Return queries, each a multiple of one key, and keys, which are vectors of +-1.

    There are as many distinct keys as headdim allows; all others are 0. Two distinct keys differ in
    at least one column, so the wanted key wins by 2 * factor * |scale| >= GAP.
    """
    batch, seqlen_k, nheads_k, headdim = k_shape
    codes = min(seqlen_k, 2 ** min(headdim, 20))
    bits = torch.arange(codes, device=random.device)[:, None] >> torch.arange(headdim, device=random.device).clamp(
        max=30
    )
    signs = (bits & 1).float() * 2 - 1
    k = torch.zeros(k_shape, device=random.device)
    for b in range(batch):
        for h in range(nheads_k):
            k[b, random.order(seqlen_k)[:codes], h] = signs
    first, count = _seen_under_every_alignment(case, random.device)
    wanted = first + (random.uniform((batch, case.seqlen_q), 0, 1) * count).long()
    wanted = wanted.clamp(0, max(seqlen_k - 1, 0))
    factor = 2.0 ** math.ceil(math.log2(GAP / 2 / abs(case.scale))) if case.scale else 1.0
    if not seqlen_k:
        return torch.zeros(q_shape, device=random.device), k
    rows = torch.arange(batch, device=random.device)[:, None]
    per_head = k[rows, wanted].repeat_interleave(case.nheads // nheads_k, dim=2)
    return per_head * math.copysign(factor, case.scale), k


def _seen_under_every_alignment(case: Case, device: torch.device | str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (sq,) each: the first key that a query sees under every alignment, and their number.

    The number is at least 1.
    """
    rows = torch.arange(case.seqlen_q, device=device)
    bounds = [mask_of(case, alignment).bounds(rows, case.seqlen_q, case.seqlen_k) for alignment in ALIGNMENTS]
    first = torch.stack([first for first, _ in bounds]).amax(0)
    last = torch.stack([last for _, last in bounds]).amin(0)
    return first, (last - first + 1).clamp(1, max(case.seqlen_k, 1))


def _values(case: Case, random: RandomTensors, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    if case.regime == "exact":
        return random.integers(shape, -3, 3)
    if case.regime == "large":
        return random.uniform(shape, -10, 10)
    if case.regime == "mean":
        return random.normal(shape, 0.5) + 1.0
    if case.regime == "one_sign":
        large = _Large.of(case)
        if name == "v":
            return random.uniform(shape, 0.9, 1.1) * _levels(case, random.device) * large.v
        return random.uniform(shape, 0.5, 1.5) * large.dout
    return random.normal(shape)


def _sinks(case: Case, x: Inputs) -> torch.Tensor:
    """Return the sinks (h), float32, of these kinds:

    count     exp(sink) is 1, 2, 3, ..., so that exp(lse) counts whole numbers where scores are 0
    spread    near the level of the scores
    some_off  the same, and -inf for every second head
    high      above every score, so out is nearly 0
    """
    random, heads = RandomTensors(case, x.q.device, "sinks"), torch.arange(case.nheads, device=x.q.device)
    if case.sinks == "count":
        return (heads + 1.0).log()
    if case.sinks == "high":
        q, k = (float(tensor.float().norm(dim=-1).amax()) if tensor.numel() else 0.0 for tensor in (x.q, x.k))
        largest = abs(case.scale) * q * k
        largest = largest if case.softcap is None else min(largest, case.softcap)
        if x.bias is not None and x.bias.is_floating_point() and x.bias.numel():
            largest += max(0.0, float(x.bias.amax()))
        return largest + HIGH + heads / 8.0
    level = {"shifted_down": -SHIFT, "shifted_up": SHIFT}.get(case.regime, 1.0)
    level = level if case.softcap is None else max(-case.softcap, min(level, case.softcap))
    sinks = level + random.normal((case.nheads,), 2.0)
    off = (heads + random.number(0, 1)) % 2 == 1
    return sinks.masked_fill(off, -torch.inf) if case.sinks == "some_off" else sinks


def _dlse(case: Case, device: str | torch.device) -> torch.Tensor:
    """Return dlse (b, h, sq), float32, about as large as the sum over dout * out."""
    random, shape = RandomTensors(case, device, "dlse"), (case.batch, case.nheads, case.seqlen_q)
    if case.regime == "exact":
        return random.integers(shape, -3, 3)
    if case.regime == "one_sign":
        large, rows = _Large.of(case), math.prod(shape)
        most = LARGEST_RESULT / max(4 * abs(case.scale) * large.k, 2 * rows)  # of dq, and of a dbias for all rows
        return random.uniform(shape, 0.5, 1.5) * min(large.dout * large.v, most)
    return random.normal(shape, 1.0) + (1.0 if case.regime == "mean" else 0.0)


def _dlse_where_defined(case: Case, x: Inputs) -> torch.Tensor:
    """Return dlse, and 0 in rows that see neither a key nor a sink, if their head may have one.

    Such a row has lse = sink = -inf. The derivative is 1 for every finite sink and 0 without one,
    so whether dsink includes dlse there is a matter of definition.
    """
    dlse, off = x.dlse, (x.sinks == -torch.inf)[:, None]
    for alignment in ALIGNMENTS:
        if may_have_empty_rows(case, alignment):
            dlse = dlse.masked_fill(off & rows_without_keys(case, alignment, x), 0.0)
    return dlse


def _bias(case: Case, random: RandomTensors) -> torch.Tensor:
    shape = case.bias_shape
    if case.bias_mask == "alibi":
        return _alibi(case, random)
    if case.bias in BOOLEAN:
        hidden = hidden_by_bias(case, random)
        return torch.ones(shape, device=random.device) if hidden is None else (~hidden).expand(shape)
    if case.regime == "exact":
        bias = random.integers(shape, -2, 2)
    else:
        bias = random.normal(shape, 0.01 if case.regime == "flat" else 1.0)
    hidden = hidden_by_bias(case, random)
    if hidden is None:
        return bias
    finite = case.bias_mask == "finite"
    return bias.masked_fill(hidden, FINITE_MASKS[random.number(0, 1)] if finite else float("-inf"))


def _alibi(case: Case, random: RandomTensors) -> torch.Tensor:
    """Return -slope_h * |i + seqlen_k - seqlen_q - j| (Press et al. 2022).

    slope_h = 2^(-8 (h + 1) / nheads).
    """
    batch, nheads, rows, keys = case.bias_shape
    slopes = 2.0 ** (-8.0 * torch.arange(1, nheads + 1, device=random.device) / nheads)
    i = torch.arange(rows, device=random.device)[:, None] + keys - rows
    distance = (i - torch.arange(keys, device=random.device)).abs().float()
    return (-slopes[:, None, None] * distance).expand(batch, nheads, rows, keys)
