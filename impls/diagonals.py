"""The mask of a call as two diagonals, for kernels whose problems are integers."""

from __future__ import annotations

from typing import NamedTuple

from flash_attest.impls.contract.arguments import LARGEST_SIZE, Sizes

Window = tuple[int | None, int | None]


class Diagonals(NamedTuple):
    """Query i sees keys i + first .. i + last, as far as they exist.

    Both are -LARGEST_SIZE to LARGEST_SIZE. Where a side is open, every query sees its end.
    """

    first: int
    last: int


def diagonals(sizes: Sizes, causal: bool, window: Window | None, alignment: str) -> Diagonals:
    """Return the diagonals of a causal mask, a window (left, right), or both, which intersect."""
    left, right = window or (None, None)
    aligned = sizes.seqlen_k - sizes.seqlen_q if alignment == "bottom_right" else 0
    if causal:
        right = 0
    first = -LARGEST_SIZE if left is None else max(aligned - left, -LARGEST_SIZE)
    last = sizes.seqlen_k if right is None else min(aligned + right, sizes.seqlen_k)
    return Diagonals(first, last)
