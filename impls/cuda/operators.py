"""The functions that a model calls, flash_attention_1 and flash_attention_2, with gradients.

Each is two PyTorch operators (torch.library), forward and backward: torch.compile does not look inside, and a CUDA graph
captures their launches.
"""

from __future__ import annotations

import torch

from impls.arguments import check_no_tangent

from .algorithm import Algorithm, check

# A copy of this package defines its own operators and does not replace those of the original.
NAMESPACE = "flash_attest_cuda" if __package__ == "impls.cuda" else __package__.replace(".", "_")


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
    return _attention(fa1_forward, q, k, v, bias, causal, softmax_scale, causal_alignment, return_lse)


def flash_attention_2(
    q, k, v, bias=None, causal=False, softmax_scale=None, *, causal_alignment="bottom_right", return_lse=False
):
    """softmax(softmax_scale q k^T + bias) v.                                           FlashAttention-2, Algorithm 1

    Arguments, results and errors are those of flash_attention_1. It is faster: more blocks, fewer passes over out.
    """
    return _attention(fa2_forward, q, k, v, bias, causal, softmax_scale, causal_alignment, return_lse)


def _attention(operator, q, k, v, bias, causal, softmax_scale, alignment, return_lse):
    differentiated = wants_gradient(q, k, v, bias)
    check(
        q, k, v, bias, causal, softmax_scale, alignment, differentiated
    )  # before PyTorch raises a less specific error
    check_no_tangent(q=q, k=k, v=v, bias=bias)
    scale = None if softmax_scale is None else float(softmax_scale)
    out, lse = operator(q, k, v, bias, causal, scale, alignment)
    return (out, lse) if return_lse else out


def wants_gradient(*given: object) -> bool:
    """Whether a call on these has a backward: whether any of them is a tensor that requires grad."""
    return torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in given)


def _registered(name: str):
    """(forward, backward) of an algorithm as operators, with fake implementations and autograd."""

    @torch.library.custom_op(f"{NAMESPACE}::{name}_forward", mutates_args=())
    def forward(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        bias: torch.Tensor | None,
        causal: bool,
        softmax_scale: float | None,
        alignment: str,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """-> out, lse."""
        options = dict(causal=causal, bias=bias, softmax_scale=softmax_scale)
        return Algorithm(name, alignment).forward(q, k, v, **options)

    @torch.library.custom_op(f"{NAMESPACE}::{name}_backward", mutates_args=())
    def backward(
        dout: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        bias: torch.Tensor | None,
        out: torch.Tensor,
        lse: torch.Tensor,
        causal: bool,
        softmax_scale: float | None,
        alignment: str,
        wants_dbias: bool,
    ) -> list[torch.Tensor]:
        """-> dq, dk, dv, and dbias if there is a bias and it is wanted."""
        options = dict(causal=causal, bias=bias, softmax_scale=softmax_scale, wants_dbias=wants_dbias)
        return list(Algorithm(name, alignment).backward(dout, q, k, v, out, lse, **options))

    @forward.register_fake
    def _(q, k, v, bias, causal, softmax_scale, alignment):
        return q.new_empty(q.shape), q.new_empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32)

    @backward.register_fake
    def _(dout, q, k, v, bias, out, lse, causal, softmax_scale, alignment, wants_dbias):
        like = [q, k, v, bias] if bias is not None and wants_dbias else [q, k, v]
        return [x.new_empty(x.shape) for x in like]

    def keep(ctx, inputs, output):
        q, k, v, bias, *ctx.options = inputs
        ctx.save_for_backward(q, k, v, bias, *output)
        ctx.mark_non_differentiable(output[1])

    def differentiate(ctx, dout, _dlse):
        wants_dbias = ctx.needs_input_grad[3]
        grads = backward(dout, *ctx.saved_tensors, *ctx.options, wants_dbias)
        return *grads[:3], grads[3] if wants_dbias else None, None, None, None

    forward.register_autograd(differentiate, setup_context=keep)
    return forward, backward


fa1_forward, fa1_backward = _registered("fa1")
fa2_forward, fa2_backward = _registered("fa2")
