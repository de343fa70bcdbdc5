"""What a model calls: flash_attention_1 and flash_attention_2, differentiable, and opaque to torch.compile.

Forward and backward of each algorithm are PyTorch operators in the namespace flash_attest_numba (torch.library), so a
compiled graph and autograd see two calls and not the kernels' launches.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from impls.arguments import check_no_tangent

from .attention import Algorithm, statistic
from .problem import check

# An edited copy of this package (a mutant) registers its own operators beside those of the original.
NAMESPACE = "flash_attest_numba" if __package__ == "impls.numba" else __package__.replace(".", "_")


def flash_attention_1(
    q, k, v, bias=None, causal=False, softmax_scale=None, *, causal_alignment="bottom_right", return_lse=False
):
    """FlashAttention-1 (Dao et al. 2022, Algorithm 1): softmax(softmax_scale q k^T + bias) v.

    q (batch, seqlen_q, nheads, headdim), k, v (batch, seqlen_k, nheads_k, headdim), where nheads is a multiple of nheads_k;
    all float32, float16 or bfloat16; headdim 1 to 256. Any strides. On a GPU; where there is none, on the CPU, for tests.
    bias: None, or float32 or q's dtype, (batch | 1, nheads | 1, 1 | seqlen_q, seqlen_k). A key with bias -inf is hidden.
    softmax_scale: headdim ** -0.5 if None. 0 and negative numbers are scales like any other.
    causal_alignment: which corner the diagonal of a causal mask meets if seqlen_q != seqlen_k: "bottom_right", "top_left".
    Returns out, like q; with return_lse also lse (batch, nheads, seqlen_q): float32, natural logarithm, no gradient.
    Where a query sees no key, out is 0 and lse -inf.
    First-order gradients, in reverse mode. Each kernel is compiled when it is first needed, in seconds.
    Raises, before any launch, ValueError that names the argument and its value, and NotImplementedError in forward-mode AD;
    RuntimeError if the GPU has too little shared memory.
    """
    given = (q, k, v, bias, causal, softmax_scale, causal_alignment)
    return _attention("fa1", given, return_lse)


def flash_attention_2(
    q, k, v, bias=None, causal=False, softmax_scale=None, *, causal_alignment="bottom_right", return_lse=False
):
    """FlashAttention-2 (Dao 2023, Algorithm 1), called as flash_attention_1. Faster: it has a block for each query tile."""
    given = (q, k, v, bias, causal, softmax_scale, causal_alignment)
    return _attention("fa2", given, return_lse)


def _attention(name, given, return_lse):
    q, k, v, bias, causal, softmax_scale, alignment = given
    check(q, k, v, bias, causal, softmax_scale, alignment)  # PyTorch's own error would come first and say less
    check_no_tangent(q=q, k=k, v=v, bias=bias)
    scale = None if softmax_scale is None else float(softmax_scale)
    out, lse = OPERATORS[name].forward(q, k, v, bias, causal, scale, alignment)
    return (out, lse) if return_lse else out


class Operators(NamedTuple):
    """The two operators of an algorithm."""

    forward: torch.library.CustomOpDef
    backward: torch.library.CustomOpDef


def _define(name: str) -> Operators:
    """Register flash_attest_numba::fa1_forward and fa1_backward (name "fa1"), with what they return and their gradients."""

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
        return Algorithm(name, alignment).forward(q, k, v, causal=causal, bias=bias, softmax_scale=softmax_scale)

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
        way = Algorithm(name, alignment)
        how = dict(causal=causal, bias=bias, softmax_scale=softmax_scale, wants_dbias=wants_dbias)
        return list(way.backward(dout, q, k, v, out, lse, **how))

    @forward.register_fake
    def _(q, k, v, bias, causal, softmax_scale, alignment):
        return q.new_empty(q.shape), statistic(q)

    @backward.register_fake
    def _(dout, q, k, v, bias, out, lse, causal, softmax_scale, alignment, wants_dbias):
        differentiated = (q, k, v, bias) if wants_dbias and bias is not None else (q, k, v)
        return [x.new_empty(x.shape) for x in differentiated]

    def keep(ctx, inputs, output):
        *tensors, ctx.causal, ctx.scale, ctx.alignment = inputs
        ctx.save_for_backward(*tensors, *output)
        ctx.mark_non_differentiable(output[1])  # lse

    def differentiate(ctx, dout, _):
        wants_dbias = ctx.needs_input_grad[3]
        grads = backward(dout, *ctx.saved_tensors, ctx.causal, ctx.scale, ctx.alignment, wants_dbias)
        return *grads, *(None,) * (7 - len(grads))

    forward.register_autograd(differentiate, setup_context=keep)
    return Operators(forward, backward)


OPERATORS = {name: _define(name) for name in ("fa1", "fa2")}
