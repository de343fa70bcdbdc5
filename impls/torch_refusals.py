"""Calls that PyTorch's kernels get wrong without an error, or do not support, each with the reason.

A rule takes a case or the tensors of a call, and returns why the call is refused, or None.
torch_sdpa.py names the PyTorch versions with which this was measured.
"""

import torch

from flash_attest.impls.contract.arguments import rounded_up

# Found by test_offsets_need_64_bits, in float32: docs/why/bugs.md#found-by-this-suite.
FAR_ROWS = "with one query or one key, cuBLAS reads outside of a tensor whose rows lie more than 2^31 elements apart"


def refuses_far_rows(q, k, v, rows=1):
    """Refuse rows (along dimension `rows`) so far apart that their offsets exceed 32 bits."""
    far = any(x.stride(rows) * (x.shape[rows] - 1) >= 2**31 for x in (q, k, v))
    return FAR_ROWS if far and 1 in (q.shape[rows], k.shape[rows]) else None


def refuses_far_columns(q, k, v):
    """Refuse columns that lie far apart on a CPU, because MKL gets them wrong.

    With headdim 1, MKL multiplies by columns, and counts their stride in bytes.
    test_offsets_need_64_bits found this (torch 2.13, float32). Results are right if rows lie 2^31
    elements or more apart.
    """
    far = any(2**29 <= x.stride(2) < 2**31 and x.shape[2] > 1 for x in (q, k, v))
    if far and q.shape[-1] == 1 and q.dtype == torch.float32:
        return "with headdim 1, MKL's product by a vector reads other memory where rows lie 2^31 bytes apart or more"
    return None


def refuses_bias_with_causal(case):
    """Refuse a bias with a causal mask: PyTorch does not take attn_mask with is_causal."""
    if case.causal and case.bias:
        return "PyTorch takes is_causal or attn_mask, not both"
    return None


def refuses_empty(case):
    """Refuse empty tensors.

    The operators do not check for them: the CPU operator divides by zero, which ends the process.
    """
    if 0 in (case.batch, case.seqlen_q, case.seqlen_k):
        return "the operator needs a batch and seqlens of at least 1"
    return None


def refuses_no_batch(case):
    """Refuse a batch without sequences or queries, for which FA2 cannot be launched."""
    return None if case.batch and case.seqlen_q else "the kernel needs a batch and seqlen_q of at least 1"


def refuses_no_keys(case):
    """Refuse seqlen_k = 0, which is wrong in half dtypes on a CPU (torch 2.13).

    Found by test_no_keys_give_zero: see docs/why/bugs.md#found-by-this-suite.
    """
    if case.seqlen_k == 0:
        return "with seqlen_k = 0, PyTorch's math attention may return uninitialised memory"
    return None


def refuses_half_gqa(case):
    """Refuse GQA in half dtypes, as the gradient of each query head is rounded before the sum."""
    if case.nheads != case.nheads_k and case.dtype != torch.float32:
        return "with GQA in a half dtype, PyTorch rounds dk and dv once for every query head before it sums them"
    return None


def refuses_scale_not_positive(case):
    """Refuse softmax_scale <= 0.

    FA2 scales after masking: -inf times 0 is NaN, and -inf times -1 is +inf. cuDNN gives NaN, too.
    """
    if case.softmax_scale is not None and case.softmax_scale <= 0:
        return "softmax_scale should be positive: the kernel scales after masking, which gives NaN otherwise"
    return None


def refuses_causal_scale_not_positive(case):
    """Refuse softmax_scale <= 0 with a causal mask. The CPU kernel masks only then."""
    return refuses_scale_not_positive(case) if case.causal else None


def refuses_one_by_one(case):
    """Refuse one query and one key: cuDNN says 's_q = s_kv = 1 is not supported'."""
    if case.seqlen_q == case.seqlen_k == 1:
        return "cuDNN does not support seqlen_q = seqlen_k = 1"
    return None


def refuses_half_tiles_of_keys(case):
    """Refuse key counts for which cuDNN's gradients are NaN.

    Found by test_ragged_sizes_match_the_definition: see docs/why/bugs.md#found-by-this-suite.
    """
    if case.seqlen_k and (case.seqlen_k % 128 == 64 or (case.seqlen_q == 1 and case.seqlen_k % 64 == 0)):
        return (
            "cuDNN's gradients are NaN here (seqlen_k % 128 = 64, or 1 query) where every score of a row is below -88"
        )
    return None


def refuses_flash_beyond_2_31(case):
    """Refuse a padded q of more than 2^31 elements. Only the backward is wrong there.

    Found by test_tensors_beyond_2_31_elements: see docs/why/bugs.md#found-by-this-suite.
    """
    elements = case.batch * case.nheads * rounded_up(case.seqlen_q, 128) * rounded_up(case.headdim, 32)
    if elements > 2**31:
        return "flash's backward reads memory that is not its own where q, padded to tiles, has more than 2^31 elements"
    return None


def refuses_cudnn_beyond_2_31(case):
    """Refuse a q of more than 2^31 elements. test_tensors_beyond_2_31_elements found this."""
    if case.batch * case.nheads * case.seqlen_q * case.headdim > 2**31:
        return "cuDNN's dq is wrong from element 2^31 on"
    return None
