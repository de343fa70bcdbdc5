"""The mask of a call as two diagonals, for kernels whose problems are integers."""

from __future__ import annotations

import numbers
from typing import NamedTuple

from flash_attest.impls.contract.arguments import LARGEST_SIZE, Sizes

SMALLEST_CAP, LARGEST_CAP = 2.0**-126, 2.0**127  # normal in float32

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


def _is_count(side: object) -> bool:
    return isinstance(side, numbers.Integral) and not isinstance(side, bool) and side >= 0


def check_window(window: object) -> None:
    """Raises ValueError unless window is None or a pair, each side an int from 0 on or None."""
    pair = isinstance(window, tuple | list) and len(window) == 2
    if window is not None and not (pair and all(side is None or _is_count(side) for side in window)):
        raise ValueError(
            f"window is {window!r}: should be (left, right), each None or an int of at least 0, or None for no window"
        )


def check_softcap(softcap: object) -> None:
    """Raises ValueError unless softcap is None or a positive number that float32 holds."""
    number = isinstance(softcap, numbers.Real) and not isinstance(softcap, bool)
    if softcap is not None and not (number and SMALLEST_CAP <= float(softcap) <= LARGEST_CAP):
        raise ValueError(f"softcap is {softcap!r}: should be a number from 2^-126 to 2^127, or None for no cap")
