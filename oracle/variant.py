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
    which may hold -inf anywhere. softmax_scale: None means 1 / sqrt(headdim).
    """

    mask: Mask = field(default_factory=Mask)
    bias: torch.Tensor | None = None
    softmax_scale: float | None = None

    def scale(self, headdim: int) -> float:
        """Return softmax_scale, or its default for this head dim."""
        return 1 / math.sqrt(headdim) if self.softmax_scale is None else float(self.softmax_scale)
