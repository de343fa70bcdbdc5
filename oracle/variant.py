"""The variant of attention, with its default scale."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from .masks import Mask


@dataclass(frozen=True)
class Variant:
    """Everything that defines attention besides q, k and v.

    A new feature becomes a field, so it does not change the signatures that take a Variant.

    mask: which keys each query sees. bias: None or (batch | 1, nheads | 1, 1 | seqlen_q, seqlen_k),
    which may hold -inf anywhere. softmax_scale: None means 1 / sqrt(headdim). softcap: the scores
    are softcap * tanh(scores / softcap) before the bias is added; None means no cap. sinks: None or
    (nheads), a score for each query head that takes a share of the softmax and has no value; -inf
    takes none.

    Raises ValueError for a softcap that is not a positive number.
    """

    mask: Mask = field(default_factory=Mask)
    bias: torch.Tensor | None = None
    softmax_scale: float | None = None
    softcap: float | None = None
    sinks: torch.Tensor | None = None

    def __post_init__(self):
        if self.softcap is not None and not (math.isfinite(self.softcap) and self.softcap > 0):
            raise ValueError(f"softcap={self.softcap!r}: should be a positive number, or None for no cap")

    def scale(self, headdim: int) -> float:
        """Return softmax_scale, or its default for this head dim."""
        return 1 / math.sqrt(headdim) if self.softmax_scale is None else float(self.softmax_scale)
