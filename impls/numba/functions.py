"""What a model calls: flash_attention_1 and flash_attention_2, differentiable, and opaque to torch.compile.

Forward and backward of each algorithm are PyTorch operators in the namespace flash_attest_numba (torch.library), so a
compiled graph and autograd see two calls and not the kernels' launches.
"""

from __future__ import annotations

from flash_attest.impls.contract.arguments import check_no_tangent
from flash_attest.impls.operators import namespace_of, registered

from .attention import Algorithm
from .problem import check

NAMESPACE = namespace_of(__package__, "flash_attest.impls.numba", "flash_attest_numba")


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
    First-order gradients, in reverse mode. Each kernel is compiled when it is first needed, in seconds: call once before
    a CUDA graph captures it.
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


OPERATORS = {name: registered(NAMESPACE, name, Algorithm) for name in ("fa1", "fa2")}
