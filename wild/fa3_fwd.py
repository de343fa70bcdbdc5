"""fa3-fwd 0.0.3: the forward of FlashAttention-3, built for Hopper.

This build has bfloat16 and fp8, but no backward, no windows and no pages (its fa3_fwd_config.py).
With a scale of 0 or below out is NaN (finding #126), so of those 0 and -0.5 alone are declared. A
merge of one part writes nothing (finding #128), so it gets two or more.
"""

import torch

from flash_attest import Implementation, Precision, Supports
from flash_attest.wild import module_of
from flash_attest.wild.known import Because, known

package = module_of("fa3_fwd", "fa3_fwd_interface")


def dense(q, k, v, *, softcap=None, **keywords):
    """(batch, seqlen, nheads, headdim) x 3 -> out like q, lse (batch, nheads, seqlen_q)."""
    out, lse, *_ = package.flash_attn_func(q, k, v, softcap=softcap or 0.0, return_attn_probs=True, **keywords)
    return out, lse


def varlen(q, k, v, *, softcap=None, **keywords):
    """(total, nheads, headdim) x 3 -> out like q, lse (nheads, total_q)."""
    out, lse, *_ = package.flash_attn_varlen_func(q, k, v, softcap=softcap or 0.0, return_attn_probs=True, **keywords)
    return out, lse


def cache(q, k, v, *, k_new, v_new, softcap=None, **keywords):
    """k, v (slots, capacity, nheads_k, headdim)."""
    out, lse, *_ = package.flash_attn_with_kvcache(
        q, k, v, k_new, v_new, softcap=softcap or 0.0, return_softmax_lse=True, **keywords
    )
    return out, lse


def merge(out_parts, lse_parts, *, out_dtype):
    """(n, batch, seqlen_q, nheads, headdim), (n, batch, nheads, seqlen_q) -> out, lse without n."""
    out, lse = package.flash_attn_combine(out_parts, lse_parts.mT, out_dtype=out_dtype)
    return out, lse.mT


def positive(case):
    """Return why a case is refused; None if it is not."""
    return None if case.softmax_scale is None or case.softmax_scale > 0 else "the scale should be positive"


def few_negative(case):
    return None if case.softmax_scale in (0, -0.5) else positive(case)


def fits(case):
    """Return why a case is refused: new keys are padded to as many as queries, which must fit."""
    return "more new keys than the cache holds" if case.append and case.seqlen_q > case.seqlen_k else positive(case)


def several(case):
    """Return why a case is refused."""
    return None if case.num_splits > 1 else "a single part is not written"


def implementation(name, forward, merge="accumulator", accepts=positive, known_failures=(), **features):
    same = dict(dtypes={torch.bfloat16}, headdims=range(8, 257, 8), cross=True)
    return Implementation(
        name=f"fa3_fwd{name}", forward=forward, lse="natural", devices={"cuda"},
        precision=Precision(merge=merge, tanh=2**-11), known_failures=known(*known_failures),
        supports=Supports(**same, **features, accepts=accepts),
    )  # fmt: skip


SAME = dict(causal="optional", softmax_scale=True, softcap=True, gqa=True)
SPLITS = (1, 2, 3, 8, 64)
ONE = "seqlen_q=1 seqlen_k=1 headdim=8 dtype=bfloat16"
SCALES = (
    Because("finding #126: a scale of 0 gives NaN", ONE).fail("scale_zero_is_q_zero softmax_scale=0.0"),
    Because("finding #126: a negative scale gives NaN", ONE).fail("negative_scale_is_negated_q softmax_scale=0.5"),
)
MANY = Because("finding #141: nothing is written").fail(
    "batches_beyond_65535 seqlen_q=2 seqlen_k=2 headdim=8 dtype=bfloat16 batch=65601 num_splits=2"
)
NO_KEYS = ("finding #136: lse is +inf in a call without keys", ONE.replace("seqlen_k=1", "seqlen_k=0"))
INFINITE = Because(*NO_KEYS).fail("no_keys_give_zero")
# The other sequences of a call, and the rest of a cache, are keys as well.
MAYBE_INFINITE = Because(*NO_KEYS, every_run=False).fail("no_keys_give_zero")
IMPLS = [
    implementation("", dense, accepts=few_negative, known_failures=[*SCALES, INFINITE], strides="aligned", **SAME),
    implementation("_varlen", varlen, known_failures=[MAYBE_INFINITE], form="varlen", **SAME),
    implementation("_cache", cache, "lse", fits, [MAYBE_INFINITE], form="cache", append=True, splits=SPLITS, **SAME),
    implementation("_merge", merge, "lse", several, [MANY], form="parts", splits=SPLITS),
]
