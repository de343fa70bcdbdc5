"""Masks: the only module that defines which query sees which key."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

ALIGNMENTS = ("bottom_right", "top_left")


@dataclass(frozen=True)
class Mask:
    """The keys that are hidden from a query by position alone. (A bias of -inf hides by value.)

    causal: query i sees key j only if j <= i + seqlen_k - seqlen_q ("bottom_right": the last query
    sees every key), or j <= i ("top_left"). Raises ValueError for an unknown alignment.
    """

    causal: bool = False
    alignment: str = "bottom_right"

    def __post_init__(self):
        if self.alignment not in ALIGNMENTS:
            known = ", ".join(map(repr, ALIGNMENTS))
            raise ValueError(f"alignment={self.alignment!r}: should be one of {known}")

    @property
    def sees_all(self) -> bool:
        """Whether every query sees every key at all lengths."""
        return self == Mask(alignment=self.alignment)

    def bounds(self, rows: torch.Tensor, seqlen_q: int, seqlen_k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """rows (n), query indices -> first, last (n): a query sees keys first .. last.

        first may be negative and last beyond the keys. A query sees none if last < first, or
        last < 0. Every mask that hides a prefix and a suffix of the keys fits this form.
        """
        first, last = torch.zeros_like(rows), torch.full_like(rows, seqlen_k - 1)
        if self.causal:
            last = rows + (seqlen_k - seqlen_q) if self.alignment == "bottom_right" else rows
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
        """Return whether some query sees no key at all."""
        return _has_empty_rows(self, seqlen_q, seqlen_k)


@lru_cache(maxsize=4096)  # called several times for each case
def _has_empty_rows(mask: Mask, seqlen_q: int, seqlen_k: int) -> bool:
    first, last = mask.bounds(torch.arange(seqlen_q), seqlen_q, seqlen_k)
    return bool((torch.clamp(last, max=seqlen_k - 1) < first).any())
