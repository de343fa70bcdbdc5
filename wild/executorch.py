"""ExecuTorch's sdpa for its CUDA backend, in Triton: bfloat16, forward only.

Its docstring documents a boolean mask that is the same for all heads, causal for as many queries
as keys, 0.0 for the default scale, and kv_len, the number of filled keys of a longer cache. A
comment of its code says that head dims above 256 are not supported. It is registered by
torch.library.triton_op, which runs on any device, so nothing is needed to emulate it.
"""

import torch

from flash_attest import Implementation, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import file_of
from flash_attest.wild.known import Because, known

package = file_of("executorch")


def attention(q, k, v, *, bias=None, softmax_scale=None, **options):
    """(batch, nheads, seqlen, headdim) x 3 -> out like q."""
    scale = 0.0 if softmax_scale is None else softmax_scale
    return package.sdpa(q, k, v, attn_mask=bias, scale=scale, enable_gqa=True, **options)


def causal(q, k, v, *, softmax_scale=None):
    return attention(q, k, v, softmax_scale=softmax_scale, is_causal=True)


def masked(q, k, v, *, bias=None, softmax_scale=None):
    """Pass a mask that hides nothing if there is no bias."""
    shape = q.shape[0], 1, q.shape[2], k.shape[2]
    mask = torch.ones(shape, dtype=torch.bool, device=q.device) if bias is None else bias.expand(shape)
    return attention(q, k, v, bias=mask, softmax_scale=softmax_scale)


def decode(q, k, v, *, softmax_scale=None):
    """Call it with keys that fill a part of a cache, whose capacity is at least 256."""
    if q.shape[2] > 4:
        raise ValueError(f"seqlen_q is {q.shape[2]}: should be at most 4")
    caches = [x.new_full((*x.shape[:2], x.shape[2] // 256 * 256 + 512, x.shape[3]), torch.nan) for x in (k, v)]
    for cache, keys in zip(caches, (k, v), strict=True):
        cache[:, :, : keys.shape[2]] = keys
    return attention(q, *caches, softmax_scale=softmax_scale, kv_len=torch.tensor(k.shape[2], device=q.device))


def accepts(case):
    """Return why a case is refused; None if it is not."""
    if case.softmax_scale == 0:
        return "0.0 is the default scale"
    if case.bias is not None and case.bias_nheads > 1:
        return "the mask is the same for all heads"
    return None


def whole_tiles(case):
    return accepts(case) or ("lengths that tiles do not divide are finding #110" if case.seqlen_k % 128 else None)


def few_queries(case):
    return accepts(case) or ("more than 4 queries take another path" if case.seqlen_q > 4 else None)


def implementation(name, function, headdims, *, few=(64,), accepts=accepts, known_failures=(), **features):
    """Return an Implementation. few: the head dims on a CPU, where compiling takes seconds."""
    same = dict(dtypes={torch.bfloat16}, gqa=True, softmax_scale=True, strides=True, accepts=accepts) | features
    supports = {"cpu": Supports(headdims=few, **same), "cuda": Supports(headdims=headdims, **same)}
    return Implementation(
        name=f"executorch{name}", forward=adapted(function)[0], layout="bhsd", supports=supports, traced=True,
        share={"cpu": 0.05}, known_failures=known(*known_failures),
    )  # fmt: skip


SHORT = "seqlen_q=1 seqlen_k=1 dtype=bfloat16"
NO_QUERIES = Because(
    "finding #113: 0 queries and grouped heads raise ZeroDivisionError", f"{SHORT} nheads=2 nheads_k=1"
)
OFFSETS = Because("finding #112: offsets are 32 bits", f"{SHORT} nheads=4")
PADDING = Because("finding #110: zeros past the last key are counted as keys").fail("""
    padding_keys_count_nothing seqlen_q=1 seqlen_k=1 headdim=64 dtype=bfloat16
    calls_outside_the_promise_raise_or_are_right seqlen_q=1 seqlen_k=128 headdim=64 dtype=bfloat16
""")
FIXED = Because(
    "finding #111: P is exp(score - 5), whatever the maximum; of a single key, too, where bfloat16 rounds it",
    f"{SHORT} headdim=64",
).fail("""
    single_key_is_copied every_column_of_headdim_matters
    winning_key_is_copied regime=selecting
    out_matches_the_definition regime=shifted_down
    huge_scores_match_the_definition regime=shifted_up
    single_query_matches_the_definition regime=shifted_down
    shifting_all_scores_changes_only_lse nheads=3 softmax_scale=1.0 regime=exact seed=195
""")
POWERS, OTHERS = (16, 32, 64, 128, 256), (24, 48, 80, 96, 112, 192)
NO_QUERIES_64 = NO_QUERIES.fail("no_queries_give_no_gradient seqlen_q=0 headdim=64")
IMPLS = [
    implementation("", attention, POWERS, cross=True, accepts=whole_tiles, known_failures=[PADDING, NO_QUERIES_64]),
    implementation(
        "_other_headdims",
        attention,
        OTHERS,
        few=(24,),
        cross=True,
        known_failures=[
            NO_QUERIES.fail("no_queries_give_no_gradient seqlen_q=0 headdim=24"),
            OFFSETS.fail("offsets_need_64_bits headdim=24"),
        ],
    ),
    implementation(
        "_causal",
        causal,
        POWERS,
        causal="always",
        known_failures=[
            OFFSETS.fail("offsets_need_64_bits seqlen_q=4 seqlen_k=4 headdim=64 nheads=1 causal=True"),
        ],
    ),
    implementation(
        "_masked",
        masked,
        POWERS,
        cross=True,
        bias={"boolean_vector", "boolean_matrix"},
        known_failures=[NO_QUERIES_64, OFFSETS.fail("offsets_need_64_bits headdim=64")],
    ),
    implementation("_decode", decode, POWERS, cross=True, accepts=few_queries, known_failures=[FIXED, NO_QUERIES_64]),
]
