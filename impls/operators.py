"""Makes PyTorch operators (torch.library) of an algorithm's forward and backward.

torch.compile does not trace into them, CUDA graphs capture their launches, and autograd sees only
two calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch


class Operators(NamedTuple):
    """The two operators of an algorithm."""

    forward: torch.library.CustomOpDef
    backward: torch.library.CustomOpDef


def namespace_of(package: str, original: str, name: str) -> str:
    """Return the namespace of operators. An edited copy of a package (a mutant) has another one."""
    return name if package == original else package.replace(".", "_")


def registered(namespace: str, name: str, algorithm: Callable[[str, str], Any]) -> Operators:
    """Register namespace::NAME_forward and NAME_backward, with fake implementations and gradients.

    algorithm(name, causal alignment) has forward(q, k, v, ...) -> out, lse and backward(dout, q, k,
    v, out, lse, ...) -> dq, dk, dv[, dbias]. Both take causal, window, bias, softmax_scale and
    softcap; backward also takes wants_dbias. The operators take a window as two numbers.
    """

    # The operators.
    @torch.library.custom_op(f"{namespace}::{name}_forward", mutates_args=())
    def forward(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        bias: torch.Tensor | None,
        causal: bool,
        left: int | None,
        right: int | None,
        softmax_scale: float | None,
        softcap: float | None,
        alignment: str,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(q, k, v) -> out, lse."""
        options = dict(causal=causal, window=(left, right), bias=bias, softmax_scale=softmax_scale, softcap=softcap)
        return algorithm(name, alignment).forward(q, k, v, **options)

    @torch.library.custom_op(f"{namespace}::{name}_backward", mutates_args=())
    def backward(
        dout: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        bias: torch.Tensor | None,
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
        """(dout, q, k, v, out, lse) -> dq, dk, dv, and dbias if there is one and it is wanted."""
        options = dict(causal=causal, window=(left, right), bias=bias, softmax_scale=softmax_scale, softcap=softcap)
        return list(algorithm(name, alignment).backward(dout, q, k, v, out, lse, **options, wants_dbias=wants_dbias))

    # The shapes of the results, for torch.compile.
    @forward.register_fake
    def _(q, k, v, bias, causal, left, right, softmax_scale, softcap, alignment):
        return q.new_empty(q.shape), q.new_empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32)

    @backward.register_fake
    def _(dout, q, k, v, bias, out, lse, causal, left, right, softmax_scale, softcap, alignment, wants_dbias):
        differentiated = (q, k, v, bias) if wants_dbias and bias is not None else (q, k, v)
        return [x.new_empty(x.shape) for x in differentiated]

    # The gradient of the forward operator is computed by the backward operator.
    def save(ctx, inputs, output):
        ctx.options = inputs[4:]
        ctx.save_for_backward(*inputs[:4], *output)
        ctx.mark_non_differentiable(output[1])  # lse

    def differentiate(ctx, dout, _):
        wants_dbias = ctx.needs_input_grad[3]
        grads = backward(dout, *ctx.saved_tensors, *ctx.options, wants_dbias)
        return *grads, *(None,) * (4 + len(ctx.options) - len(grads))  # one gradient for each argument

    forward.register_autograd(differentiate, setup_context=save)
    return Operators(forward, backward)
