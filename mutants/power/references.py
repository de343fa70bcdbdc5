"""The references of other suites: attention written out in PyTorch, and PyTorch's math kernel."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from flash_attest.impls import Implementation
from flash_attest.impls.contract.tensors import Inputs, Outputs
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.features import mask_of

Attention = Callable[..., torch.Tensor]  # q, k, v, bias -> out, all in the public layout


def differentiated(attention: Attention, x: Inputs, dtype: torch.dtype | None = None) -> Outputs:
    """Compute out, dq, dk, dv, and dbias if there is a bias, by autograd.

    dtype: if given, all inputs are cast to it first.
    """
    leaves = {name: tensor if dtype is None else tensor.to(dtype) for name, tensor in x.items()}
    dout = leaves.pop("dout")
    leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in leaves.items()}
    with torch.enable_grad():
        out = attention(**{"bias": None, **leaves})
    gradients = torch.autograd.grad(out, tuple(leaves.values()), dout)
    return Outputs(out=out.detach(), **{f"d{name}": g for name, g in zip(leaves, gradients, strict=True)})


def written_out(impl: Implementation, case: Case, *, upcast: bool) -> Attention:
    """Return softmax attention in three operations. A row without keys gives 0.

    upcast: compute in float32 and cast to the dtype of q at the end. Otherwise each operation
    rounds to that dtype, and k is scaled instead of q, so that the roundings differ from a
    kernel's.
    """
    seen = mask_of(case, impl.causal_alignment).visible

    def attention(q, k, v, bias):
        dtype, group = q.dtype, q.shape[2] // k.shape[2]
        if upcast:
            q, k, v = q.float(), k.float(), v.float()
        k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
        q, k = (q * case.scale, k) if upcast else (q, k * case.scale)
        s = torch.einsum("bihd,bjhd->bhij", q, k)
        if bias is not None:
            s = s + bias.to(s.dtype)
        hidden = ~seen(case.seqlen_q, case.seqlen_k, device=q.device)
        p = torch.softmax(s.masked_fill(hidden, float("-inf")), -1)
        p = p.masked_fill(hidden.all(-1, keepdim=True), 0.0)
        return torch.einsum("bhij,bjhd->bihd", p, v).to(dtype)

    return attention


def math_kernel(case: Case) -> Attention:
    """Return F.scaled_dot_product_attention with the math kernel.

    Its causal mask is used for seqlen_q = seqlen_k only.
    """

    def attention(q, k, v, bias):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        mask = None if bias is None else bias.to(q.dtype)
        with sdpa_kernel(SDPBackend.MATH):
            out = scaled_dot_product_attention(
                q, k, v, mask, is_causal=case.causal, scale=case.softmax_scale, enable_gqa=case.nheads != case.nheads_k
            )
        return out.transpose(1, 2)

    return attention
