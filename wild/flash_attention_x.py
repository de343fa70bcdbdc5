"""flash_attention_x 0.0.1: attention and causal attention, in Triton.

Causal rows that see no key are NaN. No document defines them.
"""

import torch

from flash_attest import Implementation, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of
from flash_attest.wild.known import Because, known

package = module_of("flash_attention_x", "flash_attention_x")


def attention(q, k, v, *, causal=False, softmax_scale=None):
    """Call it with (batch, nheads, seqlen, headdim) x 3 -> out like q."""
    return package.flash_attn(q, k, v, causal, softmax_scale)


forward, backward = adapted(attention)
OFFSETS = "finding #55: offsets are 32-bit"
COMMON = {"dtypes": {torch.float16, torch.bfloat16}, "cross": True, "softmax_scale": True}


def declare(name, *, backward=backward, known_failures=(), **supports):
    """Return the record of one set of options. headdims are those that the package asserts."""
    fields = {**COMMON, **supports}
    return Implementation(
        name=f"flash_attention_x{name}",
        forward=forward,
        backward=backward,
        layout="bhsd",
        supports={
            "cuda": Supports(**fields, headdims={16, 32, 64, 128}),
            "cpu": Supports(**fields, headdims={64}),
        },
        empty_rows="undefined",
        outside="undefined",
        repeatable={"out", "dk", "dv"},  # dq is summed by atomics
        tile=(128, 32),
        traced=True,
        share={"cpu": 0.05},
        known_failures=known(Because(OFFSETS).fail("tensors_beyond_2_31_elements"), *known_failures),
    )


# Finding #54: the causal gradient does not compile, so it is not declared.
IMPLS = [
    declare(""),
    declare("_causal", backward=None, causal="optional"),
    declare(
        "_strides",
        backward=None,
        strides=True,
        cross=False,
        softmax_scale=False,
        known_failures=[
            Because("finding #53: k is read by the strides of v").fail(
                "any_layout_equals_the_contiguous_one seqlen_q=33 seqlen_k=33 headdim=64 dtype=float16 layout=mixed"
            ),
            Because(OFFSETS).fail("offsets_need_64_bits seqlen_q=4 seqlen_k=4 headdim=64 dtype=float16"),
        ],
    ),
]
