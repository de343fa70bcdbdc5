"""flash-attn 2.8.3: FlashAttention-2, its CUDA kernels.

Negative scales are not declared, because the maximum of a row is taken before the scale. lse of a
row without keys is +inf (finding #143), though the package documents the logsumexp of the row. In a
dense call without any key it stays +inf, and one law judges it. Elsewhere such rows get -inf here:
otherwise every law about lse would fail, and none would say anything about the other rows.
"""

import math

from flash_attest import Implementation, Precision, Supports
from flash_attest.notation import cu_seqlens_of
from flash_attest.wild import module_of
from flash_attest.wild.known import Because, known

package = module_of("flash_attn", "flash_attn")


def its(keywords):
    """Return the keywords as this package names them."""
    window, softcap = keywords.pop("window", None), keywords.pop("softcap", None)
    sides = tuple(-1 if side is None else side for side in window or (None, None))
    return dict(keywords, window_size=sides, softcap=softcap or 0.0)


def with_lse(out, lse, *_):
    return out, lse.masked_fill(lse == math.inf, -math.inf)


def dense(q, k, v, **keywords):
    """(batch, seqlen, nheads, headdim) x 3 -> out like q, lse (batch, nheads, seqlen_q)."""
    out, lse, _ = package.flash_attn_func(q, k, v, return_attn_probs=True, **its(keywords))
    return with_lse(out, lse) if k.shape[1] else (out, lse)


def repeatable(q, k, v, **keywords):
    return dense(q, k, v, deterministic=True, **keywords)


def varlen(q, k, v, **keywords):
    """(total, nheads, headdim) x 3 -> out like q, lse (nheads, total_q)."""
    return with_lse(*package.flash_attn_varlen_func(q, k, v, return_attn_probs=True, **its(keywords)))


def paged(q, k, v, *, seqused_k, **keywords):
    """k, v (pages, page_size, nheads_k, headdim)."""
    return varlen(q, k, v, cu_seqlens_k=cu_seqlens_of(seqused_k), **keywords)


def cache(q, k, v, *, k_new, v_new, **keywords):
    """k, v (slots, capacity, nheads_k, headdim)."""
    return with_lse(*package.flash_attn_with_kvcache(q, k, v, k_new, v_new, return_softmax_lse=True, **its(keywords)))


def implementation(
    name, forward, backward=None, repeatable=("out", "lse", "dk", "dv"), merge="accumulator", failures=(), **features
):
    """repeatable: dq is summed by atomics."""
    same = dict(headdims=range(8, 257, 8), causal="optional", window={"left", "right", "both"}, softcap=True, gqa=True)
    return Implementation(
        name=f"flash_attn{name}", forward=forward, backward=backward, lse="natural", devices={"cuda"},
        repeatable=repeatable, precision=Precision(merge=merge), known_failures=known(*failures),
        supports=Supports(softmax_scale="positive", cross=True, **same, **features),
    )  # fmt: skip


DENSE = dict(
    strides="last_contiguous",
    failures=[
        Because(
            "finding #143: lse of a row without keys is +inf", "seqlen_q=1 seqlen_k=0 headdim=8 dtype=float16"
        ).fail("no_keys_give_zero"),
    ],
)
IMPLS = [
    implementation("", dense, "autograd", **DENSE),
    implementation("_repeatable", repeatable, "autograd", ("out", "lse", "dq", "dk", "dv"), **DENSE),
    implementation("_varlen", varlen, "autograd", form="varlen"),
    implementation("_paged", paged, form="paged", page_sizes=(256, 512)),
    implementation("_cache", cache, merge="lse", form="cache", append=True, splits=(1, 2, 8, 64)),
]
