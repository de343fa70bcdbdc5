"""The distance between got and want in units of the budget, for the limits of every comparison.

    z         = max(0, |got - want| - u_out |want| - tiny/2) / sigma            per element
    rms_ratio = rms(got - want) / rms(allowed) / (1 + SMALL_SAMPLE / sqrt(n))   of the tensor

The bound of the last rounding, to the output's dtype, is known exactly, so z subtracts its worst
case. The rms cannot subtract it, so the rounding is part of the allowed error:
allowed^2 = sigma^2 + u_out^2 want^2 / 3 + tiny^2 / 12. Both rms are over the elements where got,
want and sigma are finite. n is the number of rows that carry the budget: (sum w)^2 / sum w^2, where
w is allowed^2 summed over a row. Elements of one row share errors (of delta, of lse, of P), and a
few rows may carry the whole budget. With n = 1 the rms is a single error, and has the limit of a
single error. The limit tightens to RMS_LIMIT as n grows.

In the linear form sigma is the worst case / Z_WORST, so z = 6.4 means that every rounding had its
worst case. In this form allowed is the error at z = 8, 8 sigma + u_out |want| + tiny/2, and
rms_ratio is 1.5 rms(got - want) / rms(allowed), which cannot exceed 1.5 unless some z exceeds 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch

from .limits import RMS_LIMIT, Z_LIMIT
from .rounding import roundoff, smallest_subnormal

# At n = 1, RMS_LIMIT * (1 + SMALL_SAMPLE) = Z_LIMIT: one error is judged as one error.
SMALL_SAMPLE = Z_LIMIT / RMS_LIMIT - 1


@dataclass
class Score:
    """z in the shape of got, its largest element worst_z (0 if empty), and rms_ratio of the tensor.

    sums (4): worst_z, and the sums that make rms_ratio. They stay on the device until worst_z or
    rms_ratio is read. `read_scores` fetches the sums of several scores together, as each fetch
    waits for the GPU.
    """

    z: torch.Tensor
    sums: torch.Tensor
    linear: bool

    @cached_property
    def _read(self) -> list[float]:
        return self.sums.tolist()

    @property
    def worst_z(self) -> float:
        return self._read[0]

    @property
    def rms_ratio(self) -> float:
        worst, total, size, rows = self._read
        if worst == math.inf:
            return math.inf
        if not total:
            return 0.0
        if not size:
            return math.inf
        if self.linear:
            return math.sqrt(total / size) * RMS_LIMIT  # rms(allowed) is itself the limit
        n = size * size / rows
        return math.sqrt(total / size) / (1 + SMALL_SAMPLE / math.sqrt(n))

    @property
    def within(self) -> bool:
        """Whether both limits hold. NaN is never within."""
        return self.worst_z <= Z_LIMIT and self.rms_ratio <= RMS_LIMIT


def read_scores(scores: list[Score]) -> None:
    """Fetch the numbers of several scores from their device at once."""
    if scores:
        for score, sums in zip(scores, torch.stack([score.sums for score in scores]).tolist(), strict=True):
            score._read = sums


def score(
    got: torch.Tensor, want: torch.Tensor, sigma: torch.Tensor, out_dtype: torch.dtype, form: str = "independent"
) -> Score:
    """got, want, sigma of one shape -> Score. got was rounded to out_dtype (float32 for lse).

    If got == want, also if both are the same infinity, the error is 0. A NaN, or an infinity on one
    side only, gives z = inf. But if want exceeds the largest value of out_dtype, both an infinity
    of its sign and that largest value are right. Where sigma is 0, an error beyond the output
    rounding gives z = inf.

    Raises ValueError if the shapes of got and want differ.
    """
    if got.shape != want.shape:
        raise ValueError(f"got has shape {tuple(got.shape)}, should be {tuple(want.shape)}")
    got = _overflowed(got.detach().double().to(want.device), want, sigma, out_dtype)
    u, tiny = roundoff(out_dtype), smallest_subnormal(out_dtype)
    return _score(got, want, sigma, u * want.abs(), tiny, want.ndim > 3, form == "linear")


def pair_score(
    a: torch.Tensor,
    b: torch.Tensor,
    sigma_a: torch.Tensor,
    sigma_b: torch.Tensor,
    out_dtype: torch.dtype,
    form: str = "independent",
) -> Score:
    """a, b, sigma_a, sigma_b of one shape -> Score of two results that should agree.

    Each has its own noise, and both were rounded to out_dtype:
    z = max(0, |a - b| - u_out (|a| + |b|) - tiny) / sigma with sigma = sqrt(sigma_a^2 + sigma_b^2),
    or sigma_a + sigma_b in the linear form.
    """
    a, b = a.detach().double(), b.detach().double().to(a.device)
    sigma = sigma_a + sigma_b if form == "linear" else torch.hypot(sigma_a, sigma_b)
    u, tiny = roundoff(out_dtype), smallest_subnormal(out_dtype)
    return _score(a, b, sigma, u * (a.abs() + b.abs()), 2 * tiny, b.ndim > 3, form == "linear")


def _score(got, want, sigma, last_rounding, tiny, in_rows: bool, linear: bool) -> Score:
    """got, want, sigma, last_rounding of one shape, tiny the spacing at 0 -> Score."""
    if got.numel() == 0:
        return Score(torch.zeros_like(want), want.new_zeros(4, dtype=torch.float64), linear)
    same = got == want  # where both are inf, the difference is NaN, but there is no error
    error = (got - want).abs_().masked_fill_(same, 0.0)
    beyond = (error - last_rounding).sub_(tiny / 2).clamp_(min=0.0)  # NaN stays NaN
    # 0 / 0 counts as no error. NaN is never right. A sigma of NaN (the oracle overflowed) hides no
    # error.
    z = (beyond / sigma).masked_fill_(beyond == 0, 0.0).nan_to_num_(nan=math.inf, posinf=math.inf)

    if linear:
        allowed = (sigma * Z_LIMIT).add_(last_rounding).add_(tiny / 2).square_()
    else:
        allowed = (sigma * sigma).addcmul_(last_rounding, last_rounding, value=1 / 3).add_(tiny * tiny / 12)
    infinite = ~torch.isfinite(error + allowed)
    allowed, error = allowed.masked_fill_(infinite, 0.0), error.masked_fill_(infinite, 0.0)
    rows = allowed.sum(-1) if in_rows else allowed
    sums = torch.stack([z.amax(), error.square().sum(), allowed.sum(), rows.square().sum()])
    return Score(z, sums, linear)


def _overflowed(got: torch.Tensor, want: torch.Tensor, sigma: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
    """got, want, sigma of one shape -> got, replaced by want if both overflow alike."""
    largest = torch.finfo(out_dtype).max
    # The noise of a correct kernel may exceed the largest value, too.
    over = want.abs() + Z_LIMIT * sigma > largest
    if not over.is_cuda and not over.any():  # asking a GPU takes longer than the rest of this function
        return got
    stored = (got.abs() >= largest) & (got.sign() == want.sign())
    return torch.where(over & stored, want, got)
