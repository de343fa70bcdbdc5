"""Records which queries and keys are wrong in a failure, for its picture on the page."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import torch

from flash_attest.properties.cases.features import mask_of
from flash_attest.properties.checks.pictures import AXES
from flash_attest.properties.trial import Trial

MOST_RANGES = 200  # the most ranges of rows, and pairs, that a picture shows
Range = tuple[int, int]  # first and last
FAR = 2**40  # a query so far behind or before the keys that the first or last one of its window is not cut off


@dataclass
class Wrong:
    """The wrong part of one tensor in one case. In results.json it is `wrong`.

    queries, keys: the rows with a wrong element. Both are empty if the tensor has no such axis.
    diagonal: query i sees key j only if j <= i + diagonal; None if no mask ends there.
    missing, extra: (query, key) pairs that the implementation masks, or attends to, by mistake.
    start: query i sees key j only if j >= i + start; None without a window on the left.
    """

    tensor: str
    seqlen_q: int
    seqlen_k: int
    diagonal: int | None
    tile: tuple[int, int] | None
    queries: list[Range] = field(default_factory=list)
    keys: list[Range] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)
    extra: list[tuple[int, int]] = field(default_factory=list)
    start: int | None = None

    def as_dict(self) -> dict:
        return asdict(self)


def wrong_in(trial: Trial, name: str, bad: torch.Tensor) -> Wrong | None:
    """Return the wrong part of the tensor `name`, or None if its axes are not known.

    bad: bool, in the shape of the tensor.
    """
    case, axes = trial.case, AXES.get(name)
    if axes is None or bad.dim() != len(axes):
        return None
    mask = mask_of(case, trial.impl.causal_alignment)
    firsts, lasts = mask.bounds(torch.tensor([FAR, -FAR]), case.seqlen_q, case.seqlen_k)
    left, right = case.window or (None, None)
    start = None if left is None else int(firsts[0]) - FAR
    diagonal = int(lasts[1]) + FAR if case.causal or right is not None else None
    rows = {axis: _ranges(bad, axes.index(axis)) if axis in axes else [] for axis in "ij"}
    return Wrong(name, case.seqlen_q, case.seqlen_k, diagonal, trial.impl.tile, rows["i"], rows["j"], start=start)


def cells(marked: torch.Tensor) -> list[tuple[int, int]]:
    """Return the first marked (query, key) pairs. marked: bool (sq, sk)."""
    return [(int(i), int(j)) for i, j in marked.nonzero()[:MOST_RANGES]]


def _ranges(bad: torch.Tensor, dim: int) -> list[Range]:
    """Return the first ranges of indices along `dim` with a wrong element."""
    ranges: list[Range] = []
    for n in bad.transpose(0, dim).reshape(bad.shape[dim], -1).any(dim=1).nonzero().flatten().tolist():
        if ranges and n == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], n)
        elif len(ranges) == MOST_RANGES:
            break
        else:
            ranges.append((n, n))
    return ranges
