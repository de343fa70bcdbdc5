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
    """Return None, or why a case is refused: a block of keys is not full, or lies past the last
    key, or P v overflows.
    """
    if case.seqlen_k % 128:
        return f"seqlen_k={case.seqlen_k}: not whole blocks, findings #88 to #90"
    return "v is large, finding #91" if case.regime == "one_sign" else square(case)


def sage(name, function, known_failures, **supports):
    """Return an Implementation of the package, with the laws that are known to fail."""
    forward, _ = adapted(function)
    common = dict(dtypes={torch.float16}, causal="optional", cross=True, gqa=True, softmax_scale=True)
    common |= dict(strides="last_contiguous", accepts=whole_blocks) | supports
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
PADDING = Because("finding #88: padding keys are counted", ONE_KEY).fail("padding_keys_count_nothing")
OVERFLOW = Because(
    "finding #91: P v overflows", "seqlen_q=1 seqlen_k=128 headdim=64 dtype=float16 regime=one_sign seed=1"
).fail("out_matches_the_definition")
NEXT = "row_that_sees_one_key_copies_it no_race_is_traced"

IMPLS = [
    sage(
        "_unsmoothed",
        unsmoothed,
        [PADDING, OVERFLOW, Because("finding #89: the scale past the last key is read", CAUSAL).fail(NEXT)],
    ),
    sage("_blocks", copied, [OVERFLOW]),
    sage(
        "_varlen",
        varlen,
        [
            PADDING,
            OVERFLOW,
            Because("finding #90: the scale past the last key is read", CAUSAL).fail("no_race_is_traced"),
            Because("finding #92: offsets have 32 bits").fail(
                "offsets_need_64_bits seqlen_q=9 seqlen_k=9 headdim=64 dtype=float16 regime=peaked seed=2"
            ),
        ],
        form="varlen",
    ),
]
