"""The functions that a model calls: flash_attn_func and its packed forms, with gradients.

Each is one PyTorch operator (torch.library). torch.compile does not trace into it, and CUDA graphs
capture its launches. The packed forms read and write packed tensors through views, so nothing is
copied if the last stride is 1.
"""

from __future__ import annotations

import torch

from flash_attest.impls.contract.arguments import check_no_tangent, check_tensor

from .attention import FlashAttention2
from .problem import problem_of


def flash_attn_func(
    q, k, v, bias=None, causal=False, softmax_scale=None, *, causal_alignment="bottom_right", return_lse=False
):
    """Return softmax(softmax_scale q k^T + bias) v by FlashAttention-2 (Dao 2023, Algorithm 1).

    q: (batch, seqlen_q, nheads, headdim).
    k, v: (batch, seqlen_k, nheads_k, headdim), where nheads is a multiple of nheads_k.
    bias: None, or float32 or q's dtype, (batch | 1, nheads | 1, 1 | seqlen_q, seqlen_k). A key with
    bias -inf is hidden; a finite bias is clamped to at least -1.1e38.
    softmax_scale: headdim ** -0.5 if None. 0 and negative numbers are allowed.
    causal_alignment: the corner at which the diagonal of a causal mask lies if seqlen_q !=
    seqlen_k: "bottom_right" or "top_left".

    Returns out, like q; with return_lse also lse (batch, nheads, seqlen_q): float32, natural
    logarithm, no gradient. If a query sees no key, out is 0 and lse -inf. Gradients are
    first-order, in reverse mode.

    Raises, before any launch, ValueError for invalid arguments, and NotImplementedError in
    forward-mode AD.
    """
    return _attention([q, k, v], bias, causal, softmax_scale, causal_alignment, return_lse)


def flash_attn_kvpacked_func(
    q, kv, bias=None, causal=False, softmax_scale=None, *, causal_alignment="bottom_right", return_lse=False
):
    """Call flash_attn_func on packed keys and values.

    q (batch, seqlen_q, nheads, headdim), kv (batch, seqlen_k, 2, nheads_k, headdim).
    """
    return _attention([q, kv], bias, causal, softmax_scale, causal_alignment, return_lse)


def flash_attn_qkvpacked_func(
    qkv, bias=None, causal=False, softmax_scale=None, *, causal_alignment="bottom_right", return_lse=False
):
    """Call flash_attn_func on qkv (batch, seqlen, 3, nheads, headdim)."""
    return _attention([qkv], bias, causal, softmax_scale, causal_alignment, return_lse)


def _attention(packed, bias, causal, softmax_scale, alignment, return_lse):
    q, k, v = unpacked(packed)
    # Check here, outside of the operator, so that the caller gets a ValueError.
    problem_of(q, k, v, bias, causal, softmax_scale, alignment)
    check_no_tangent(q=q, k=k, v=v, bias=bias)
    scale = None if softmax_scale is None else float(softmax_scale)
    out, lse = attention_forward(packed, bias, causal, scale, alignment)
    return (out, lse) if return_lse else out


def unpacked(packed: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """[q, k, v], [q, kv] or [qkv] -> q, k, v (batch, seqlen, heads, headdim), as views."""
    if len(packed) == 3:
        return tuple(packed)
    name, parts = ("qkv", 3) if len(packed) == 1 else ("kv", 2)
    *first, last = packed
    check_tensor(name, last)
    if last.dim() != 5 or last.shape[2] != parts:
        shape = tuple(last.shape)
        raise ValueError(f"{name} has shape {shape}: should be (batch, seqlen, {parts}, nheads, headdim)")
    return (*first, *last.unbind(2))


@torch.library.custom_op("flash_attest_triton::forward", mutates_args=())
def attention_forward(
    packed: list[torch.Tensor], bias: torch.Tensor | None, causal: bool, softmax_scale: float | None, alignment: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """[q, k, v], [q, kv] or [qkv] -> out, lse."""
    way = FlashAttention2(alignment=alignment)
    return way.forward(*unpacked(packed), causal=causal, bias=bias, softmax_scale=softmax_scale)


@attention_forward.register_fake
def _(packed, bias, causal, softmax_scale, alignment):
    q = unpacked(packed)[0]
    return q.new_empty(q.shape), q.new_empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32)


@torch.library.custom_op("flash_attest_triton::backward", mutates_args=())
def attention_backward(
    dout: torch.Tensor,
    packed: list[torch.Tensor],
    bias: torch.Tensor | None,
    out: torch.Tensor,
    lse: torch.Tensor,
    causal: bool,
    softmax_scale: float | None,
    alignment: str,
    wants_dbias: bool,
) -> list[torch.Tensor]:
    """Return the gradients of the packed tensors, also packed, and dbias if it is wanted."""
    way = FlashAttention2(alignment=alignment)
    grads = [x.new_empty(x.shape) for x in packed]
    options = dict(causal=causal, bias=bias, softmax_scale=softmax_scale, wants_dbias=wants_dbias)
    results = way.backward(dout, *unpacked(packed), out, lse, into=unpacked(grads), **options)
    return grads + list(results[3:])


@attention_backward.register_fake
def _(dout, packed, bias, out, lse, causal, softmax_scale, alignment, wants_dbias):
    return [x.new_empty(x.shape) for x in packed] + ([bias.new_empty(bias.shape)] if wants_dbias else [])


def _save(ctx, inputs, output):
    packed, bias, *ctx.options = inputs
    ctx.packed, ctx.biased = len(packed), bias is not None
    ctx.save_for_backward(*packed, *([bias] if ctx.biased else []), *output)
    ctx.mark_non_differentiable(output[1])


def _differentiate(ctx, dout, _dlse):
    saved = ctx.saved_tensors
    packed, bias, (out, lse) = list(saved[: ctx.packed]), saved[ctx.packed] if ctx.biased else None, saved[-2:]
    wants_dbias = ctx.needs_input_grad[1]
    grads = attention_backward(dout, packed, bias, out, lse, *ctx.options, wants_dbias)
    return grads[: ctx.packed], grads[-1] if wants_dbias else None, None, None, None


attention_forward.register_autograd(_differentiate, setup_context=_save)
