"""sageattention 1.0.6: scores from int8 q and k, in Triton. Forward only.

The package documents causal for equal lengths only. It casts v to float16 whatever the dtype is, so
only float16 is judged. As it is, the contract check fails, and nothing else is judged: k is
overwritten. So the other variants do not smooth k, or smooth a copy. With whole blocks of keys all
laws hold.
"""

import torch

from flash_attest import Implementation, Precision, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of

core = module_of("sageattention", "sageattention.core")


def smoothed(q, k, v, *, causal=False, softmax_scale=None):
    """(batch, nheads, seqlen, headdim) x 3 -> out like q."""
    return core.sageattn(q, k, v, is_causal=causal, sm_scale=softmax_scale)


def unsmoothed(q, k, v, *, causal=False, softmax_scale=None):
    """Like smoothed, without the subtraction of the mean of the keys."""
    return core.sageattn(q, k, v, is_causal=causal, sm_scale=softmax_scale, smooth_k=False)


def copied(q, k, v, **keywords):
    """Like smoothed, which subtracts from a copy."""
    return smoothed(q, k.clone(), v, **keywords)


def varlen(q, k, v, *, causal=False, softmax_scale=None, **packed):
    """(total_q, nheads, headdim), (total_k, nheads_k, headdim) x 2 -> out like q. Not smoothed."""
    return core.sageattn_varlen(q, k, v, **packed, is_causal=causal, sm_scale=softmax_scale, smooth_k=False)


def square(case):
    """Return None, or the reason for which the package refuses the case."""
    return "causal is for equal lengths" if case.causal and case.seqlen_q != case.seqlen_k else None


def whole_blocks(case):
    """Return None, or why a block of keys is not full, or lies behind the last key."""
    return square(case) or (f"seqlen_k={case.seqlen_k}: not whole blocks" if case.seqlen_k % 128 else None)


def sage(name, function, known, accepts=square, **supports):
    """An Implementation of the package under a name, with the laws that are known to fail."""
    forward, _ = adapted(function)
    common = dict(dtypes={torch.float16}, causal="optional", cross=True, gqa=True, softmax_scale=True, accepts=accepts)
    common |= dict(strides="last_contiguous") | supports
    return Implementation(
        name=f"sageattention{name}",
        forward=forward,
        layout="bhsd",
        supports={"cpu": Supports(headdims={64}, **common), "cuda": Supports(headdims={64, 96, 128}, **common)},
        precision=Precision(quantize="int8", quantize_by="block", tile_sum=64),
        outside="undefined",  # the shape of v, and causal at other lengths in the form varlen
        tile=(128, 64),
        traced=True,
        share={"cpu": 0.05},
        known_failures=known,
    )


OVERWRITTEN = dict.fromkeys(["contract_is_kept"], "finding #1: k is overwritten")
PADDING = dict.fromkeys(["padding_keys_count_nothing"], "finding #2: padding keys are counted")
SCALE = dict.fromkeys(
    [
        "out_averages_exactly_its_prefix",
        "order_of_batches_and_heads_does_not_matter",
        "batch_changes_no_bit",
        "scale_zero_is_q_zero",
        "ragged_sizes_match_the_definition",
        "out_matches_the_definition",
        "answers_follow_the_values",
        "huge_scores_match_the_definition",
        "tiny_scores_match_the_definition",
        "winning_key_is_copied",
        "row_that_sees_one_key_copies_it",
        "single_key_is_copied",
        "no_race_is_traced",
    ],
    "findings #2 and #3: padding keys are counted; with causal, a scale behind the last is read",
)

IMPLS = [
    sage("", smoothed, OVERWRITTEN),
    sage("_unsmoothed", unsmoothed, PADDING | SCALE),
    sage("_blocks", copied, {}, whole_blocks),
    sage("_varlen", varlen, {}, form="varlen"),
]
