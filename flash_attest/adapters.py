"""Adapters: `forward` and `backward` of an Implementation from a function of a package that wants a GPU.

    from flash_attest.adapters import adapted, imported

    parallel = imported("fla.ops.attn.parallel")

    def attention(q, k, v, *, softmax_scale=None):
        return parallel.parallel_attn(q, k, v, scale=softmax_scale)

    forward, backward = adapted(attention)

Without a GPU the package is imported and called as if the emulator were torch's GPU; with one, as it is.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

from flash_attest.emulation import emulated


def imported(name: str) -> ModuleType:
    """Import a module that asks torch for a GPU while it is imported, by its full name. -> the module."""
    with emulated():
        return importlib.import_module(name)


def adapted(function: Callable[..., Any], *, bias_grad: bool = False) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Make (forward, backward) of an Implementation of a function that torch.autograd differentiates.

    function(q, k, v, **keywords) -> out, or (out, lse), in the layout and with the keywords that the Implementation declares.
    bias_grad: backward returns dbias, too, where a bias is given.

    backward(dout, q, k, v, out, lse, **keywords) -> (dq, dk, dv) or (dq, dk, dv, dbias). It calls the function again with
    inputs that require gradients and asks for them inside of its block: autograd runs the package's backward where the
    gradient is asked for, and that has to be where torch has a GPU. So it takes as long as forward and backward.
    Raises RuntimeError, from torch, if the function's output does not depend on an input.
    """

    @functools.wraps(function)
    def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **keywords: Any) -> Any:
        with emulated():
            return function(q, k, v, **keywords)

    def backward(
        dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: Any, lse: Any, **keywords: Any
    ) -> tuple[torch.Tensor, ...]:
        with emulated(), torch.enable_grad():
            inputs = [x.detach().requires_grad_() for x in (q, k, v)]
            bias = keywords.get("bias") if bias_grad else None
            if bias is not None:
                bias = keywords["bias"] = bias.detach().requires_grad_()
            result = function(*inputs, **keywords)
            result = result[0] if isinstance(result, (tuple, list)) else result
            return torch.autograd.grad(result, inputs if bias is None else [*inputs, bias], dout)

    return forward, backward
