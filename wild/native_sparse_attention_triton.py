"""flash_attention_varlen of XunhaoLai/native-sparse-attention-triton: packed sequences, in Triton.

The code asserts as many keys as queries in all, float16 or bfloat16, and head dims up to 256, of
which those of v may differ. It imports einops.
"""

from flash_attest import Implementation, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import file_of

package = file_of("native_sparse_attention_triton")


def attention(q, k, v, *, causal=False, softmax_scale=None, gqa_interleave=False, **packed):
    """(total, nheads, headdim), (total, nheads_k, headdim) x 2 -> out like q."""
    return package.flash_attention_varlen(
        q, k, v, **packed, causal=causal, sm_scale=softmax_scale, gqa_interleave=gqa_interleave
    )


def interleaved(q, k, v, **keywords):
    """Call it with gqa_interleave, where query head h reads key head h % nheads_k."""
    nheads_k, share = k.shape[1], q.shape[1] // k.shape[1]
    q = q.unflatten(1, (nheads_k, share)).transpose(1, 2).flatten(1, 2)
    out = attention(q, k, v, gqa_interleave=True, **keywords)
    return out.unflatten(1, (share, nheads_k)).transpose(1, 2).flatten(1, 2)


def with_lse(q, k, v, *, causal=False, softmax_scale=None, **packed):
    """Call the forward beneath, which returns out, and lse (nheads, total) in base 2."""
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    return package._flash_attention_fwd(q, k, v, **packed, causal=causal, sm_scale=scale)


def implementation(name, forward, backward, headdims, *, few=(64,), pairs=(), few_pairs=(), lse=None, known=None):
    """Return an Implementation. few: the head dims on a CPU, where compiling takes seconds."""
    same = dict(form="varlen", causal="optional", gqa=True, softmax_scale=True, strides=True)
    return Implementation(
        name=f"native_sparse_attention_triton{name}", forward=adapted(forward)[0], backward=adapted(backward)[1],
        supports={
            "cpu": Supports(headdims=few, headdims_v=few_pairs, **same),
            "cuda": Supports(headdims=headdims, headdims_v=pairs, **same),
        },
        lse=lse, tile=(128, 64), traced=True, share={"cpu": 0.05}, known_failures=known or {},
    )  # fmt: skip


HEADDIMS = (16, 32, 48, 64, 80, 96, 128, 192, 256)
IMPLS = [
    implementation("", with_lse, attention, HEADDIMS, lse="log2"),
    implementation("_interleaved", interleaved, interleaved, HEADDIMS),
    implementation(
        "_values", attention, attention, (64,), few=(32,),
        pairs={(192, 128), (128, 64), (64, 128), (128, 96)}, few_pairs={(32, 64), (64, 48)},
    ),
]  # fmt: skip
