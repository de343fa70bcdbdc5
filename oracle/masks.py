"""Masks: the only module that defines which query sees which key."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

ALIGNMENTS = ("bottom_right", "top_left")


@dataclass(frozen=True)
class Mask:
    """The keys that are hidden from a query by position alone. (A bias of -inf hides by value.)

    A query i stands at i' = i + seqlen_k - seqlen_q ("bottom_right": the last query stands at the
    last key), or at i' = i ("top_left").

    causal: query i sees key j only if j <= i'.
    window: None, or (left, right): query i sees key j only if i' - left <= j <= i' + right. A side
    is None if it is open. With causal the two intersect.

    Raises ValueError for an unknown alignment, and for a side that is not None or an int >= 0.
    """

    causal: bool = False
    alignment: str = "bottom_right"
    window: tuple[int | None, int | None] | None = None

    def __post_init__(self):
        if self.alignment not in ALIGNMENTS:
            known = ", ".join(map(repr, ALIGNMENTS))
            raise ValueError(f"alignment={self.alignment!r}: should be one of {known}")
        if self.window is not None and not is_window(self.window):
            raise ValueError(f"window={self.window!r}: should be None or (left, right), each an int >= 0 or None")

    @property
    def sees_all(self) -> bool:
        """Whether every query sees every key at all lengths."""
        return not self.causal and self.window in (None, (None, None))

    def bounds(self, rows: torch.Tensor, seqlen_q: int, seqlen_k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """rows (n), query indices -> first, last (n): a query sees keys first .. last.

        first >= 0 and last < seqlen_k. A query sees no key if last < first. Every mask that hides a
        prefix and a suffix of the keys fits this form.
        """
        at = rows + (seqlen_k - seqlen_q) if self.alignment == "bottom_right" else rows
        left, right = self.window or (None, None)
        if self.causal:
            right = 0  # no window reaches less far to the right
        first = torch.zeros_like(rows) if left is None else (at - left).clamp(min=0)
        last = torch.full_like(rows, seqlen_k - 1) if right is None else (at + right).clamp(max=seqlen_k - 1)
        return first, last

    def visible(
        self,
        seqlen_q: int,
        seqlen_k: int,
        rows: slice = slice(None),
        device: torch.device | str = "cpu",
    ) -> torch.Tensor:
        """Return bool (n, seqlen_k): whether each query of `rows` (default: all) sees each key."""
        first, last = self.bounds(torch.arange(seqlen_q, device=device)[rows], seqlen_q, seqlen_k)
        keys = torch.arange(seqlen_k, device=device)
        return (first[:, None] <= keys) & (keys <= last[:, None])

    def has_empty_rows(self, seqlen_q: int, seqlen_k: int) -> bool:
        """Return whether some query sees no key at all. With a sink, its lse is the sink."""
        return _has_empty_rows(self, seqlen_q, seqlen_k)


def is_window(window: object) -> bool:
    """Return whether this is a pair of sides, each None or an int >= 0."""
    return (
        isinstance(window, tuple)
        and len(window) == 2
        and all(side is None or (isinstance(side, int) and not isinstance(side, bool) and side >= 0) for side in window)
    )


@lru_cache(maxsize=4096)  # called several times for each case
def _has_empty_rows(mask: Mask, seqlen_q: int, seqlen_k: int) -> bool:
    first, last = mask.bounds(torch.arange(seqlen_q), seqlen_q, seqlen_k)
    return bool((last < first).any())
