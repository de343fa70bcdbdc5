"""The functions that a model calls: flash_attention_1 and flash_attention_2, with gradients.

Each consists of two PyTorch operators (torch.library), forward and backward. torch.compile does not
trace into them, and CUDA graphs capture their launches.
"""

from __future__ import annotations

import torch

from flash_attest.impls.contract.arguments import check_no_tangent
from flash_attest.impls.operators import namespace_of, registered

from .algorithm import Algorithm, check

NAMESPACE = namespace_of(__package__, "flash_attest.impls.cuda", "flash_attest_cuda")


def flash_attention_1(
    q, k, v, bias=None, causal=False, softmax_scale=None, *, window=None, softcap=None,
    causal_alignment="bottom_right", return_lse=False,
):  # fmt: skip
    """Return softmax(cap(softmax_scale q k^T) + bias) v by FlashAttention-1.

    Dao et al. 2022, Algorithm 1.

    q: (batch, seqlen_q, nheads, headdim).
    k, v: (batch, seqlen_k, nheads_k, headdim), where nheads is a multiple of nheads_k. float32 has
    headdim 1 to 1024, float16 and bfloat16 1 to 256; gradients are computed up to 256. CPU tensors
    are allowed for tests, but slow.
    bias: None, or float32 or q's dtype, (batch | 1, nheads | 1, 1 | seqlen_q, seqlen_k). A key with
    bias -inf is hidden.
    softmax_scale: headdim ** -0.5 if None. 0 and negative numbers are allowed.
    window: (left, right): a query sees the `left` keys before its own, its own, and the `right`
    keys after it. None instead of a number leaves a side open. With causal no key after its own is
    seen.
    softcap: cap(x) = softcap tanh(x / softcap), a number from 2^-126 to 2^127. If None, cap(x) = x.
    causal_alignment: the corner at which a query's own key lies on the diagonal if seqlen_q !=
    seqlen_k: "bottom_right" or "top_left".

    Returns out, like q; with return_lse also lse (batch, nheads, seqlen_q): float32, natural
    logarithm, no gradient. If a query sees no key, out is 0 and lse -inf. Gradients are
    first-order, in reverse mode. The first call compiles, which takes minutes; later calls do not,
    even in other processes.

    Raises, before any launch, ValueError for invalid arguments, and NotImplementedError in
    forward-mode AD. Raises RuntimeError if the kernels cannot be compiled, or the GPU has too
    little shared memory.
    """
    return _attention("fa1", q, k, v, bias, causal, window, softmax_scale, softcap, causal_alignment, return_lse)


def flash_attention_2(
    q, k, v, bias=None, causal=False, softmax_scale=None, *, window=None, softcap=None,
    causal_alignment="bottom_right", return_lse=False,
):  # fmt: skip
    """Return the same as flash_attention_1, by FlashAttention-2 (Dao 2023, Algorithm 1).

    It is faster, as it has more blocks and reads and writes out less often.
    """
    return _attention("fa2", q, k, v, bias, causal, window, softmax_scale, softcap, causal_alignment, return_lse)


def _attention(name, q, k, v, bias, causal, window, softmax_scale, softcap, alignment, return_lse):
    differentiated = wants_gradient(q, k, v, bias)
    # This check comes first, because PyTorch's own errors are less specific.
    check(q, k, v, bias, causal, softmax_scale, alignment, window, softcap, differentiated)
    check_no_tangent(q=q, k=k, v=v, bias=bias)
    scale, cap = (None if x is None else float(x) for x in (softmax_scale, softcap))
    out, lse = OPERATORS[name].forward(q, k, v, bias, causal, *(window or (None, None)), scale, cap, alignment)
    return (out, lse) if return_lse else out


def wants_gradient(*arguments: object) -> bool:
    """Return whether a call has a backward: whether some tensor argument requires grad."""
    return torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in arguments)


OPERATORS = {name: registered(NAMESPACE, name, Algorithm) for name in ("fa1", "fa2")}
