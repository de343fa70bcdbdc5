"""The functions that a model calls, flash_attention_1 and flash_attention_2, with gradients.

Each is two PyTorch operators (torch.library), forward and backward: torch.compile does not look inside, and a CUDA graph
captures their launches.
"""

from __future__ import annotations

import torch

from flash_attest.impls.contract.arguments import check_no_tangent
from flash_attest.impls.operators import namespace_of, registered

from .algorithm import Algorithm, check

NAMESPACE = namespace_of(__package__, "flash_attest.impls.cuda", "flash_attest_cuda")


def flash_attention_1(
    q, k, v, bias=None, causal=False, softmax_scale=None, *, causal_alignment="bottom_right", return_lse=False
):
    """softmax(softmax_scale q k^T + bias) v.                                           FlashAttention-1, Algorithm 1

    q (batch, seqlen_q, nheads, headdim), k, v (batch, seqlen_k, nheads_k, headdim); nheads_k divides nheads. float32 with
    headdim 1 to 1024, float16 and bfloat16 with 1 to 256; gradients up to 256. Also on the CPU, slowly, for tests.
    bias None or (batch | 1, nheads | 1, 1 | seqlen_q, seqlen_k), float32 or q's dtype; -inf hides a key.
    softmax_scale: None means headdim ** -0.5; it may be 0 or negative.
    causal_alignment: with seqlen_q != seqlen_k, the mask's diagonal ends at the "bottom_right" or starts "top_left".
    -> out like q; with return_lse also lse (batch, nheads, seqlen_q) float32, natural log, without a gradient.
    A query that sees no key gives out 0 and lse -inf. Gradients are first order and reverse mode only. The first call
    compiles (minutes); later ones, also in other processes, do not. Raises ValueError, before any launch, for invalid
    arguments; NotImplementedError in forward-mode AD; RuntimeError if it cannot be compiled, or the GPU has too little
    shared memory.
    """
    return _attention("fa1", q, k, v, bias, causal, softmax_scale, causal_alignment, return_lse)


def flash_attention_2(
    q, k, v, bias=None, causal=False, softmax_scale=None, *, causal_alignment="bottom_right", return_lse=False
):
    """softmax(softmax_scale q k^T + bias) v.                                           FlashAttention-2, Algorithm 1

    Arguments, results and errors are those of flash_attention_1. It is faster: more blocks, fewer passes over out.
    """
    return _attention("fa2", q, k, v, bias, causal, softmax_scale, causal_alignment, return_lse)


def _attention(name, q, k, v, bias, causal, softmax_scale, alignment, return_lse):
    differentiated = wants_gradient(q, k, v, bias)
    check(
        q, k, v, bias, causal, softmax_scale, alignment, differentiated
    )  # before PyTorch raises a less specific error
    check_no_tangent(q=q, k=k, v=v, bias=bias)
    scale = None if softmax_scale is None else float(softmax_scale)
    out, lse = OPERATORS[name].forward(q, k, v, bias, causal, scale, alignment)
    return (out, lse) if return_lse else out


def wants_gradient(*given: object) -> bool:
    """Whether a call on these has a backward: whether any of them is a tensor that requires grad."""
    return torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in given)


OPERATORS = {name: registered(NAMESPACE, name, Algorithm) for name in ("fa1", "fa2")}
