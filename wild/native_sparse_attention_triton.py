"""flash_attention_varlen of XunhaoLai/native-sparse-attention-triton: packed sequences, in Triton.

The code asserts as many keys as queries in all, float16 or bfloat16, and head dims up to 256, of
which those of v may differ. It imports einops. Without a causal mask dq may be NaN (finding #115),
so all variants but one are causal. Gradients are wrong with gqa_interleave (finding #114) and where
the head dims of v differ (finding #116): there the forward alone is judged.
"""

from flash_attest import Implementation, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import file_of
from flash_attest.wild.known import Because, known

package = file_of("native_sparse_attention_triton")


def full(q, k, v, *, softmax_scale=None, **keywords):
    """(total, nheads, headdim), (total, nheads_k, headdim) x 2 -> out like q."""
    return package.flash_attention_varlen(q, k, v, sm_scale=softmax_scale, **keywords)


def causal(q, k, v, **keywords):
    return full(q, k, v, causal=True, **keywords)


def interleaved(q, k, v, **keywords):
    """Call it with gqa_interleave, where query head h reads key head h % nheads_k."""
    nheads_k, share = k.shape[1], q.shape[1] // k.shape[1]
    q = q.unflatten(1, (nheads_k, share)).transpose(1, 2).flatten(1, 2)
    out = causal(q, k, v, gqa_interleave=True, **keywords)
    return out.unflatten(1, (share, nheads_k)).transpose(1, 2).flatten(1, 2)


def with_lse(q, k, v, *, softmax_scale=None, **packed):
    """Call the forward beneath, which returns out, and lse (nheads, total) in base 2."""
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    return package._flash_attention_fwd(q, k, v, **packed, causal=True, sm_scale=scale)


def whole_tiles(case):
    """Return why a case is refused; None if it is not."""
    return "lengths that 64 does not divide are finding #115" if case.seqlen_k % 64 else None


def implementation(name, forward, backward, known_failures=(), **features):
    same = dict(form="varlen", causal="always", softmax_scale=True, strides=True) | features
    far = "seqlen_q=64 seqlen_k=64" if same["causal"] == "never" else "batch=2 seqlen_q=4 seqlen_k=4 causal=True"
    offsets = Because("finding #117: offsets are 32 bits", f"{far} headdim=32 dtype=float16").fail(
        "offsets_need_64_bits"
    )
    return Implementation(
        name=f"native_sparse_attention_triton{name}", forward=adapted(forward)[0],
        backward=backward and adapted(backward)[1], lse="log2" if forward is with_lse else None,
        supports={
            "cpu": Supports(headdims={32}, **same),
            "cuda": Supports(headdims=(16, 32, 48, 64, 80, 96, 128, 192, 256), **same),
        },
        tile=(128, 64), traced=True, share={"cpu": 0.02},
        known_failures=known(offsets, *known_failures),
    )  # fmt: skip


NAN = Because("finding #115: dq is NaN").fail(
    "gradients_match_the_definition seqlen_q=33 seqlen_k=33 headdim=32 dtype=float16 regime=shifted_down"
)
IMPLS = [
    implementation("", with_lse, causal, gqa=True),
    implementation("_full", full, full, [NAN], causal="never", accepts=whole_tiles),
    implementation("_interleaved", interleaved, None, gqa=True),
    implementation("_values", causal, None, headdims_v={(32, 64), (64, 48)}),
]
