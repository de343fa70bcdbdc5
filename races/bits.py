"""Views of tensors as integers, for comparing bits."""

from __future__ import annotations

import torch

INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # keyed by bytes per element


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements as integers, so that NaN equals itself and -0.0 differs from 0.0."""
    return tensor.contiguous().view(INTEGERS[tensor.element_size()])
