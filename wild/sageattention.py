"""sageattention 1.0.6: scores from int8 q and k, in Triton. Forward only.

The package documents causal for equal lengths only. It casts v to float16 whatever the dtype is, so
only float16 is judged. As it is, k is overwritten (finding #87), which breaks the contract. So the
variants do not smooth k, or smooth a copy. With whole blocks of keys only large values are wrong.
"""

import torch

from flash_attest import Implementation, Precision, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of
from flash_attest.wild.known import Because, known

core = module_of("sageattention", "sageattention.core")


def smoothed(q, k, v, *, causal=False, softmax_scale=None):
    """(batch, nheads, seqlen, headdim) x 3 -> out like q."""
    return core.sageattn(q, k, v, is_causal=causal, sm_scale=softmax_scale)


def unsmoothed(q, k, v, *, causal=False, softmax_scale=None):
    """Return what smoothed returns, without subtracting the mean of the keys."""
    return core.sageattn(q, k, v, is_causal=causal, sm_scale=softmax_scale, smooth_k=False)


def copied(q, k, v, **keywords):
    """Return what smoothed returns, which subtracts from a copy."""
    return smoothed(q, k.clone(), v, **keywords)


def varlen(q, k, v, *, causal=False, softmax_scale=None, **packed):
    """(total_q, nheads, headdim), (total_k, nheads_k, headdim) x 2 -> out like q. Not smoothed."""
    return core.sageattn_varlen(q, k, v, **packed, is_causal=causal, sm_scale=softmax_scale, smooth_k=False)


def square(case):
    """Return None, or the reason for which the package refuses the case."""
    return "causal is for equal lengths" if case.causal and case.seqlen_q != case.seqlen_k else None


def whole_blocks(case):
    """Return None, or why a block of keys is not full, or lies past the last key."""
    return square(case) or (f"seqlen_k={case.seqlen_k}: not whole blocks" if case.seqlen_k % 128 else None)


def sage(name, function, known_failures, accepts=square, **supports):
    """Return an Implementation of the package, with the laws that are known to fail."""
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
        known_failures=known(*known_failures),
    )


ONE_KEY = "seqlen_q=1 seqlen_k=1 headdim=64 dtype=float16"
CAUSAL = f"{ONE_KEY} causal=True"
PADDING = "finding #88: padding keys are counted"
SCALE = "finding #89: the scale past the last key is read"
OVERFLOW = Because(
    "finding #91: P v overflows", "seqlen_q=1 seqlen_k=128 headdim=64 dtype=float16 regime=one_sign seed=1"
)
SCALE_VARLEN = "finding #90: the scale past the last key is read"

IMPLS = [
    sage(
        "_unsmoothed",
        unsmoothed,
        [
            Because(PADDING, ONE_KEY).fail("""
                padding_keys_count_nothing ragged_sizes_match_the_definition out_matches_the_definition
                answers_follow_the_values single_key_is_copied
                tiny_scores_match_the_definition regime=flat
            """),
            Because(SCALE, CAUSAL).fail("""
                out_averages_exactly_its_prefix row_that_sees_one_key_copies_it batch_changes_no_bit
                no_race_is_traced
                winning_key_is_copied regime=selecting
                huge_scores_match_the_definition regime=shifted_up
                scale_zero_is_q_zero softmax_scale=0.0
                order_of_batches_and_heads_does_not_matter nheads=2
            """),
            OVERFLOW.fail("single_query_matches_the_definition"),
        ],
    ),
    sage(
        "_blocks",
        copied,
        [OVERFLOW.fail("out_matches_the_definition single_query_matches_the_definition answers_follow_the_values")],
        whole_blocks,
    ),
    sage(
        "_varlen",
        varlen,
        [
            Because(SCALE_VARLEN, CAUSAL).fail("""
                out_averages_exactly_its_prefix out_matches_the_definition single_key_is_copied
                batch_changes_no_bit answers_follow_lengths_and_tables no_race_is_traced
                winning_key_is_copied regime=selecting
            """),
            OVERFLOW.fail("answers_follow_the_values single_query_matches_the_definition"),
            Because("finding #92: offsets have 32 bits").fail(
                "offsets_need_64_bits seqlen_q=9 seqlen_k=9 headdim=64 dtype=float16 regime=peaked seed=2"
            ),
        ],
        form="varlen",
    ),
]
