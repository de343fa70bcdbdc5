"""Adapters: make `forward` and `backward` from a function of a package that needs a GPU.

    from flash_attest.adapters import adapted, imported

    parallel = imported("fla.ops.attn.parallel")

    def attention(q, k, v, *, softmax_scale=None):
        return parallel.parallel_attn(q, k, v, scale=softmax_scale)

    forward, backward = adapted(attention)

Without a GPU the package is imported and called as if the emulator were torch's GPU. With a GPU it
is imported and called directly.
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
    """Import a module that asks torch for a GPU when it is imported. Returns the module.

        module = imported("package.attention")

    Any exception of the import is raised, such as ModuleNotFoundError.
    """
    with emulated():
        return importlib.import_module(name)


def adapted(
    function: Callable[..., Any], *, bias_grad: bool = False, sink_grad: bool = False
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Make (forward, backward) for an Implementation from a function that autograd differentiates.

        forward, backward = adapted(attention)
        IMPL = Implementation(name="theirs", forward=forward, backward=backward)

    function(q, k, v, **keywords) -> out, or (out, lse), in the layout and with the keywords that
    the Implementation declares. bias_grad, sink_grad: backward also returns dbias if a bias is
    given, and dsink if sinks are.

    backward(dout, q, k, v, out, lse, **keywords) -> (dq, dk, dv[, dbias][, dsink]). With the
    keyword dlse, lse is differentiated, too. It takes as long as forward and backward together,
    because it calls the function again with inputs that require gradients: autograd runs the
    package's backward where the gradient is requested, and torch must appear to have a GPU there.
    It raises RuntimeError, from torch, if the function's output does not depend on an input.
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
            for name, has_grad in (("bias", bias_grad), ("sinks", sink_grad)):
                tensor = keywords.get(name) if has_grad else None
                if tensor is not None and tensor.dtype != torch.bool:  # a mask has no gradient
                    keywords[name] = tensor.detach().requires_grad_()
                    inputs.append(keywords[name])
            dlse = keywords.pop("dlse", None)
            result = function(*inputs[:3], **keywords)
            results = result if isinstance(result, (tuple, list)) else (result,)
            by = (dout,) if dlse is None else (dout, dlse)
            return torch.autograd.grad(results[: len(by)], inputs, by)

    return forward, backward
