"""Which query sees which key."""

from __future__ import annotations

import torch

ALIGNMENTS = ("bottom_right", "top_left")


def visible(
    seqlen_q: int, seqlen_k: int, *, causal: bool, alignment: str = "bottom_right", device: torch.device | str = "cpu"
) -> torch.Tensor:
    """-> bool (seqlen_q, seqlen_k): whether query i sees key j.

    bottom_right: j <= i + seqlen_k - seqlen_q (the last query sees every key); top_left: j <= i.
    """
    if not causal:
        return torch.ones(seqlen_q, seqlen_k, dtype=torch.bool, device=device)
    rows = torch.arange(seqlen_q, device=device)
    return keys_visible(last_visible(rows, seqlen_q, seqlen_k, alignment), seqlen_k)


def last_visible(rows: torch.Tensor, seqlen_q: int, seqlen_k: int, alignment: str) -> torch.Tensor:
    """rows (n) query indices -> (n) the last key that each of them sees under the causal mask; negative where none."""
    if alignment not in ALIGNMENTS:
        raise ValueError(f"alignment={alignment!r}: should be one of {', '.join(map(repr, ALIGNMENTS))}")
    return rows + (seqlen_k - seqlen_q) if alignment == "bottom_right" else rows


def keys_visible(last: torch.Tensor, seqlen_k: int) -> torch.Tensor:
    """last (n) -> bool (n, seqlen_k): j <= last."""
    return torch.arange(seqlen_k, device=last.device) <= last[:, None]
