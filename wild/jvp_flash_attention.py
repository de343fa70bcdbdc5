"""jvp-flash-attention 0.14.0: attention with tangents, in Triton; tangents are not judged.

It takes even lengths from 32 on, its backward multiples of 32. Only these are judged here: at
others its tiles of 32 reach outside (finding #69). Its mask of numbers hides keys by -100 alone, so
no bias is judged.
"""

import torch

from flash_attest import Implementation, Precision, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of
from flash_attest.wild.known import Because, known

jvp = module_of("jvp_flash_attention", "jvp_flash_attention.jvp_attention")


def attention(q, k, v, *, causal=False, softmax_scale=None):
    """(batch, nheads, seqlen, headdim) x 3 -> out like q."""
    return jvp.attention(q, k, v, causal=causal, sm_scale=softmax_scale)


def attention_masked(q, k, v, *, causal=False, softmax_scale=None, bias=None):
    """Do the same, with a mask (batch, nheads, seqlen_q, seqlen_k)."""
    mask = None if bias is None else bias.expand(*q.shape[:3], k.shape[2])
    return jvp.attention(q, k, v, attn_mask=mask, causal=causal, sm_scale=softmax_scale)


def whole_tiles(case):
    """Return None, or why a case is refused."""
    return None if case.seqlen_q % 32 == 0 < case.seqlen_q else "seqlen is a multiple of 32"


def masked(case):
    """Return None, or why a case is refused."""
    both = case.bias and case.causal
    return whole_tiles(case) or ("a mask beside causal raises an error" if both else None)


FLOAT32 = {"dtypes": {torch.float32}, "headdims": {32, 64, 128} if torch.cuda.is_available() else {32}}
SMALL = "seqlen_q=32 seqlen_k=32 headdim=32 dtype=float32"
BEYOND = Because("finding #132: out and dout are read at offsets of 32 bits").fail("tensors_beyond_2_31_elements")
NEGATIVE = "finding #65: NaN"
FEATURES = {"causal": "optional", "bias": {"boolean_matrix"}, "softmax_scale": True, "strides": True}
forward, backward = adapted(attention)
forward_masked, backward_masked = adapted(attention_masked)
COMMON = {
    "layout": "bhsd",
    "empty_rows": "undefined",
    "outside": "undefined",
    "precision": Precision(multiply="tf32_cut", probabilities="float32", scaled_in_backward="k"),
    "tile": (32, 32),
    "share": {"cpu": 0.05},
}
IMPLS = [
    Implementation(
        name="jvp_flash_attention",
        forward=forward,
        backward=backward,
        supports=Supports(**FLOAT32, softmax_scale="positive", accepts=whole_tiles),
        traced=True,
        known_failures=BEYOND,
        **COMMON,
    ),
    Implementation(
        name="jvp_flash_attention_masked",
        forward=forward_masked,
        backward=backward_masked,
        supports=Supports(**FLOAT32, **FEATURES, accepts=masked),
        known_failures=known(
            BEYOND,
            Because("finding #66: hidden keys count in the running maximum", SMALL).fail(
                "keys_hidden_by_bias_change_no_bit bias=boolean_matrix bias_mask=right"
            ),
            Because(NEGATIVE, SMALL).fail("negative_scale_is_negated_q softmax_scale=0.5 regime=large"),
            Because(NEGATIVE, every_run=False).fail("other_calls_do_not_matter"),
            Because("finding #71: strides of dimensions of size 1 are compared", SMALL).fail(
                "any_layout_equals_the_contiguous_one layout=size_one"
            ),
        ),
        **COMMON,
    ),
]
