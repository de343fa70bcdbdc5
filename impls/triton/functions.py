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
    q, k, v, bias=None, causal=False, softmax_scale=None, *, window=None, softcap=None, sinks=None,
    causal_alignment="bottom_right", return_lse=False,
):  # fmt: skip
    """Return softmax(softmax_scale q k^T + bias) v by FlashAttention-2 (Dao 2023, Algorithm 1).

    q: (batch, seqlen_q, nheads, headdim).
    k: (batch, seqlen_k, nheads_k, headdim), where nheads is a multiple of nheads_k.
    v: (batch, seqlen_k, nheads_k, headdim_v).
    bias: None, or float32 or q's dtype, (batch | 1, nheads | 1, 1 | seqlen_q, seqlen_k). A key with
    bias -inf is hidden; a finite bias is clamped to at least -1.1e38.
    softmax_scale: headdim ** -0.5 if None. 0 and negative numbers are allowed.
    window: None, or (left, right): a query sees that many keys before and behind the one on its
    diagonal, and that one. None leaves a side open. With causal, both masks hold.
    softcap: None, or a number: softcap tanh(scores / softcap) replaces the scores, before the bias.
    sinks: None, or (nheads,), float32: the score of one more key, whose value is 0. -inf: none.
    causal_alignment: the corner at which the diagonal of a causal mask or a window lies if seqlen_q
    != seqlen_k: "bottom_right" or "top_left".

    Returns out (batch, seqlen_q, nheads, headdim_v), like q; with return_lse also lse (batch,
    nheads, seqlen_q): float32, natural logarithm, with the sink. If a query sees no key, out is 0
    and lse the sink, or -inf. Gradients, those through lse included, are first-order, in reverse
    mode.

    Raises, before any launch, ValueError for invalid arguments, and NotImplementedError in
    forward-mode AD.
    """
    return _attention([q, k, v], bias, sinks, causal, window, softmax_scale, softcap, causal_alignment, return_lse)


def flash_attn_kvpacked_func(
    q, kv, bias=None, causal=False, softmax_scale=None, *, window=None, softcap=None, sinks=None,
    causal_alignment="bottom_right", return_lse=False,
):  # fmt: skip
    """Call flash_attn_func on packed keys and values.

    q (batch, seqlen_q, nheads, headdim), kv (batch, seqlen_k, 2, nheads_k, headdim).
    """
    return _attention([q, kv], bias, sinks, causal, window, softmax_scale, softcap, causal_alignment, return_lse)


def flash_attn_qkvpacked_func(
    qkv, bias=None, causal=False, softmax_scale=None, *, window=None, softcap=None, sinks=None,
    causal_alignment="bottom_right", return_lse=False,
):  # fmt: skip
    """Call flash_attn_func on qkv (batch, seqlen, 3, nheads, headdim)."""
    return _attention([qkv], bias, sinks, causal, window, softmax_scale, softcap, causal_alignment, return_lse)


def _attention(packed, bias, sinks, causal, window, softmax_scale, softcap, alignment, return_lse):
    q, k, v = unpacked(packed)
    # Check here, outside of the operator, so that the caller gets a ValueError.
    problem_of(q, k, v, bias, causal, softmax_scale, window=window, softcap=softcap, sinks=sinks, alignment=alignment)
    check_no_tangent(q=q, k=k, v=v, bias=bias, sinks=sinks)
    left, right = (None, None) if window is None else window
    scale, softcap = (None if x is None else float(x) for x in (softmax_scale, softcap))
    out, lse = attention_forward(packed, bias, sinks, causal, left, right, scale, softcap, alignment)
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
    packed: list[torch.Tensor],
    bias: torch.Tensor | None,
    sinks: torch.Tensor | None,
    causal: bool,
    left: int | None,
    right: int | None,
    softmax_scale: float | None,
    softcap: float | None,
    alignment: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """[q, k, v], [q, kv] or [qkv] -> out, lse."""
    options = dict(causal=causal, window=(left, right), softmax_scale=softmax_scale, softcap=softcap)
    return FlashAttention2(alignment=alignment).forward(*unpacked(packed), bias=bias, sinks=sinks, **options)


@attention_forward.register_fake
def _(packed, bias, sinks, causal, left, right, softmax_scale, softcap, alignment):
    q, _, v = unpacked(packed)
    batch, seqlen_q, nheads, _ = q.shape
    out = q.new_empty(batch, seqlen_q, nheads, v.shape[3])
    return out, q.new_empty(batch, nheads, seqlen_q, dtype=torch.float32)


@torch.library.custom_op("flash_attest_triton::backward", mutates_args=())
def attention_backward(
    dout: torch.Tensor,
    dlse: torch.Tensor | None,
    packed: list[torch.Tensor],
    bias: torch.Tensor | None,
    sinks: torch.Tensor | None,
    out: torch.Tensor,
    lse: torch.Tensor,
    causal: bool,
    left: int | None,
    right: int | None,
    softmax_scale: float | None,
    softcap: float | None,
    alignment: str,
    wants_dbias: bool,
) -> list[torch.Tensor]:
    """Return the gradients of the packed tensors, also packed, dbias if it is wanted, and dsink if
    there are sinks.
    """
    grads = [x.new_empty(x.shape) for x in packed]
    options = dict(causal=causal, window=(left, right), softmax_scale=softmax_scale, softcap=softcap)
    results = FlashAttention2(alignment=alignment).backward(
        dout, *unpacked(packed), out, lse, bias=bias, sinks=sinks, dlse=dlse, **options,
        into=unpacked(grads), wants_dbias=wants_dbias,
    )  # fmt: skip
    return grads + list(results[3:])


@attention_backward.register_fake
def _(dout, dlse, packed, bias, sinks, out, lse, causal, left, right, softmax_scale, softcap, alignment, wants_dbias):
    like = [*packed, *([bias] if wants_dbias else []), *([] if sinks is None else [sinks])]
    return [x.new_empty(x.shape) for x in like]


def _save(ctx, inputs, output):
    packed, bias, sinks, *ctx.options = inputs
    ctx.packed, ctx.biased, ctx.sinking = len(packed), bias is not None, sinks is not None
    ctx.save_for_backward(*packed, *(x for x in (bias, sinks) if x is not None), *output)
    ctx.set_materialize_grads(False)  # an output that nothing uses has no gradient


def _differentiate(ctx, dout, dlse):
    *inputs, out, lse = ctx.saved_tensors
    packed, others = inputs[: ctx.packed], iter(inputs[ctx.packed :])
    bias, sinks = (next(others) if given else None for given in (ctx.biased, ctx.sinking))
    wants_dbias = ctx.needs_input_grad[1]
    dout = torch.zeros_like(out) if dout is None else dout
    grads = iter(attention_backward(dout, dlse, packed, bias, sinks, out, lse, *ctx.options, wants_dbias))
    gradients = [next(grads) for _ in packed], next(grads) if wants_dbias else None, next(grads, None)
    return *gradients, *(None for _ in ctx.options)


attention_forward.register_autograd(_differentiate, setup_context=_save)
