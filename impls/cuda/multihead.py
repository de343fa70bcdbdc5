"""Multi-head attention on matrices whose columns hold the heads side by side."""

from __future__ import annotations

import numbers

import torch

from flash_attest.impls.contract.arguments import check_like, check_tensor

from .algorithm import LARGEST_HEADDIM, WIDEST_HEADDIM
from .functions import flash_attention_1, wants_gradient


def multihead_attention(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, h: int) -> torch.Tensor:
    """Q, K, V (N, d_model) float32 -> (N, d_model), the columns of h heads side by side.

    With w = d_model / h, head i has columns i w to (i + 1) w:

        columns of head i = softmax(Q_i K_i^T / sqrt(w)) V_i

    There is no causal mask. FlashAttention-1 reads the columns through their strides, so only
    inputs whose columns are not adjacent (Q.stride(1) != 1) are copied. w can be up to 1024 (256 if
    a gradient is computed). Raises ValueError, with the numbers, for invalid arguments.
    """
    check_tensor("Q", Q)
    if Q.dim() != 2 or Q.dtype != torch.float32:
        raise ValueError(f"Q is {tuple(Q.shape)} {Q.dtype}: should be (N, d_model) torch.float32")
    check_like("K", K, Q.shape, Q.dtype, Q.device)
    check_like("V", V, Q.shape, Q.dtype, Q.device)
    N, d_model = Q.shape
    if isinstance(h, bool) or not isinstance(h, numbers.Integral) or h < 1 or d_model < 1 or d_model % h:
        raise ValueError(f"h is {h!r}: should be an int, a number of heads that divides d_model, which is {d_model}")
    h, w = int(h), d_model // int(h)
    differentiated = wants_gradient(Q, K, V)
    most = LARGEST_HEADDIM if differentiated else WIDEST_HEADDIM
    if w > most:
        where = " where a gradient is computed" if differentiated else ""
        raise ValueError(f"h is {h}, and so w = d_model / h is {w}: should be at most {most}{where}")
    heads = (x.unflatten(1, (h, w)).unsqueeze(0) for x in (Q, K, V))  # (1, N, h, w), as views
    return flash_attention_1(*heads).view(N, d_model)
