"""torch.nn.attention.varlen: FlashAttention-2 on packed sequences, on a GPU only.

A window is passed as FlashAttention counts it, with -1 for an open side. PyTorch takes no keyword
causal: causal is the window (-1, 0).
"""

import torch

from flash_attest.impls import Implementation, Supports
from flash_attest.impls.contract.arguments import check_window, rounded_up
from flash_attest.impls.contract.shares import OTHERS_TEST_IT
from flash_attest.impls.torch_refusals import (
    refuses_flash_beyond_2_31,
    refuses_no_batch,
    refuses_scale_not_positive,
)

HEADDIMS = range(8, 257, 8)
INF = float("inf")


def forward(
    q, k, v, *, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, causal=False, window=None, softmax_scale=None
):
    """(total_q, h, d), (total_k, h, d) x 2 -> out (total_q, h, d), lse (h, total_q)."""
    from torch.nn.attention.varlen import AuxRequest, varlen_attn  # imports torch._dynamo, which takes seconds

    check(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, window, softmax_scale)
    left, right = sides_of(window, causal)
    # FA2 opens a right side of max_seqlen_k or more, and beside a left side, an open right side
    # becomes max_seqlen_k. Either is right only if there are no more queries than keys.
    max_seqlen_k = max(max_seqlen_k, max_seqlen_q if left >= 0 > right else right + 1)
    out, lse = varlen_attn(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
        return_aux=AuxRequest(lse=True), scale=softmax_scale, window_size=(left, right),
    )  # fmt: skip
    return out, lse.masked_fill(lse == INF, -INF)  # FA2 writes +inf for a row without keys


def sides_of(window, causal):
    """Return (left, right) for PyTorch, where -1 is an open side."""
    left, right = (-1 if side is None else side for side in window or (None, None))
    return left, 0 if causal else right


def check(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, window, softmax_scale):
    """Raise ValueError for a call outside of `supports` that the kernel does not refuse itself."""
    if k.shape != v.shape or q.shape[1:] != k.shape[1:]:
        shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
        raise ValueError(f"torch_varlen: {shapes} should have one nheads and one headdim")
    if q.shape[2] not in HEADDIMS:
        raise ValueError(f"torch_varlen: headdim is {q.shape[2]}: should be a multiple of 8 up to 256")
    if any(x.stride(-1) != 1 for x in (q, k, v)):
        raise ValueError("torch_varlen: the last dimension of q, k, v should have stride 1")
    if cu_seqlens_q.shape != cu_seqlens_k.shape or len(cu_seqlens_q) < 2 or max_seqlen_q < 1:
        raise ValueError("torch_varlen: should have a sequence and a query")
    if softmax_scale is not None and softmax_scale <= 0:
        raise ValueError(f"torch_varlen: softmax_scale is {softmax_scale}: should be positive")
    padded = (q.shape[0] + 128 * (len(cu_seqlens_q) - 1)) * q.shape[1] * rounded_up(q.shape[2], 32)
    if torch.is_grad_enabled() and padded > 2**31:
        raise ValueError(f"torch_varlen: q has {padded} elements with its padding: should have at most 2^31")
    check_window(window)


def accepts(case):
    """Return why a case is refused; None if it is not."""
    return refuses_no_batch(case) or refuses_scale_not_positive(case) or refuses_flash_beyond_2_31(case)


IMPL = Implementation(
    name="torch_varlen",
    forward=forward,
    backward="autograd",
    devices={"cuda"},
    supports=Supports(
        form="varlen",
        headdims=HEADDIMS,
        causal="optional",
        cross=True,
        softmax_scale=True,
        window={"left", "right", "both"},
        accepts=accepts,
    ),
    lse="natural",
    repeatable={"out", "lse", "dk", "dv"},  # dq is summed by atomics
    share=OTHERS_TEST_IT,
)
