"""Calls that PyTorch's kernels get wrong without an error, or cannot do, each with the reason.

A rule takes a case, or the tensors of a call; it returns None, or why the call is refused. The versions that were measured
are in torch_sdpa.py.
"""

import torch

from flash_attest.impls.contract.arguments import rounded_up

# Found by test_offsets_need_64_bits, in float32: docs/why/bugs.md#found-by-this-suite.
FAR_ROWS = "with one query or one key, cuBLAS reads outside of a tensor whose rows lie more than 2^31 elements apart"


def refuses_far_rows(q, k, v, rows=1):
    """None, or why cuBLAS would be wrong: offsets between the rows of dimension `rows` need more than 32 bits."""
    far = any(x.stride(rows) * (x.shape[rows] - 1) >= 2**31 for x in (q, k, v))
    return FAR_ROWS if far and 1 in (q.shape[rows], k.shape[rows]) else None


def refuses_far_columns(q, k, v):
    """None, or why MKL would be wrong on a CPU: with headdim 1 it multiplies by columns, whose stride it counts in bytes.

    Found by the same law (torch 2.13, float32). Rows 2^31 elements apart and more are right.
    """
    far = any(2**29 <= x.stride(2) < 2**31 and x.shape[2] > 1 for x in (q, k, v))
    if far and q.shape[-1] == 1 and q.dtype == torch.float32:
        return "with headdim 1, MKL's product by a vector reads other memory where rows lie 2^31 bytes apart or more"
    return None


def refuses_bias_with_causal(case):
    """scaled_dot_product_attention does not take attn_mask together with is_causal."""
    if case.causal and case.bias:
        return "PyTorch takes is_causal or attn_mask, not both"
    return None


def refuses_empty(case):
    """The operators do not check: the one for CPUs divides by zero and ends the process."""
    if 0 in (case.batch, case.seqlen_q, case.seqlen_k):
        return "the operator needs a batch and seqlens of at least 1"
    return None


def refuses_no_keys(case):
    """Found by test_no_keys_give_zero (torch 2.13, half dtypes on a CPU): docs/why/bugs.md#found-by-this-suite."""
    if case.seqlen_k == 0:
        return "with seqlen_k = 0, PyTorch's math attention may return uninitialised memory"
    return None


def refuses_half_gqa(case):
    """The gradients of the query heads that share a key head are rounded to the inputs' dtype before they are summed."""
    if case.nheads != case.nheads_k and case.dtype != torch.float32:
        return "with GQA in a half dtype, PyTorch rounds dk and dv once for every query head before it sums them"
    return None


def refuses_scale_not_positive(case):
    """FA2 masks with -inf and scales after: -inf times 0 is NaN, times -1 is +inf. cuDNN gives NaN too."""
    if case.softmax_scale is not None and case.softmax_scale <= 0:
        return "softmax_scale should be positive: the kernel scales after masking, which gives NaN otherwise"
    return None


def refuses_causal_scale_not_positive(case):
    """The same bug in the kernel for CPUs, which masks only if causal."""
    return refuses_scale_not_positive(case) if case.causal else None


def refuses_one_by_one(case):
    """cuDNN: 's_q = s_kv = 1 is not supported'."""
    if case.seqlen_q == case.seqlen_k == 1:
        return "cuDNN does not support seqlen_q = seqlen_k = 1"
    return None


def refuses_half_tiles_of_keys(case):
    """Found by test_ragged_sizes_match_the_definition: docs/why/bugs.md#found-by-this-suite."""
    if case.seqlen_k and (case.seqlen_k % 128 == 64 or (case.seqlen_q == 1 and case.seqlen_k % 64 == 0)):
        return (
            "cuDNN's gradients are NaN here (seqlen_k % 128 = 64, or 1 query) where every score of a row is below -88"
        )
    return None


def refuses_flash_beyond_2_31(case):
    """Found by test_tensors_beyond_2_31_elements: docs/why/bugs.md#found-by-this-suite. The forward alone is right there."""
    elements = case.batch * case.nheads * rounded_up(case.seqlen_q, 128) * rounded_up(case.headdim, 32)
    if elements > 2**31:
        return "flash's backward reads memory that is not its own where q, padded to tiles, has more than 2^31 elements"
    return None


def refuses_cudnn_beyond_2_31(case):
    """Found by the same law."""
    if case.batch * case.nheads * case.seqlen_q * case.headdim > 2**31:
        return "cuDNN's dq is wrong from element 2^31 on"
    return None
