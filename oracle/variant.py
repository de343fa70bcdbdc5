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
    softcap: None, or c > 0: scores before the bias are c tanh(score / c).
    sinks: None or (nheads), of a floating point dtype: the score of one more key of each query
    head, which has no value. -inf: the head has no sink.
    hidden: None or bool (batch | 1, nheads | 1, seqlen_q, seqlen_k), True where a key is hidden
    from a query by value, besides those that `mask` hides by position.

    Raises ValueError for a softcap, sinks or hidden keys that cannot be.
    """

    mask: Mask = field(default_factory=Mask)
    bias: torch.Tensor | None = None
    softmax_scale: float | None = None
    softcap: float | None = None
    sinks: torch.Tensor | None = None
    hidden: torch.Tensor | None = None

    def __post_init__(self):
        number = isinstance(self.softcap, (int, float)) and not isinstance(self.softcap, bool)
        if self.softcap is not None and not (number and 0 < self.softcap < math.inf):
            raise ValueError(f"softcap={self.softcap!r}: should be None, or a finite number above 0")
        if self.sinks is not None:
            _check_sinks(self.sinks)
        if self.hidden is not None and (self.hidden.ndim != 4 or self.hidden.dtype != torch.bool):
            shape, dtype = tuple(self.hidden.shape), str(self.hidden.dtype).removeprefix("torch.")
            should = "(batch | 1, nheads | 1, seqlen_q, seqlen_k) of dtype bool"
            raise ValueError(f"hidden has shape {shape} and dtype {dtype}: should be {should}")

    def scale(self, headdim: int) -> float:
        """Return softmax_scale, or its default for this head dim."""
        return 1 / math.sqrt(headdim) if self.softmax_scale is None else float(self.softmax_scale)


def _check_sinks(sinks: torch.Tensor) -> None:
    """Raise ValueError unless sinks (nheads) are numbers below inf."""
    if sinks.ndim != 1 or not sinks.is_floating_point():
        shape, dtype = tuple(sinks.shape), str(sinks.dtype).removeprefix("torch.")
        raise ValueError(f"sinks has shape {shape} and dtype {dtype}: should be (nheads) of a floating point dtype")
    if bool((impossible := ~(sinks < math.inf)).any()):
        head = int(impossible.nonzero()[0])
        raise ValueError(f"sinks[{head}]={sinks[head].item()}: should be a number, or -inf for a head without a sink")
