"""flashnn 0.1.1: FlashAttention v2 for inference, in Triton (float16).

Queries and keys are documented to have one length, and the last dimension to be contiguous.
"""

import torch

from flash_attest import Implementation, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of
from flash_attest.wild.known import Because

package = module_of("flashnn", "flashnn")


def attention(q, k, v, *, causal=False, softmax_scale=None):
    """Call it with (batch, seqlen, nheads, headdim) x 3 -> out like q."""
    return package.FlashAttention()(q, k, v, causal, softmax_scale)


forward, _ = adapted(attention)


def accepts(case):
    """Refuse empty tensors, for which there is nothing to launch, and scales that give NaN."""
    if not case.batch * case.seqlen_q:
        return "there is no query"
    scale = case.softmax_scale
    return "a scale of 0 or below is finding #61" if scale is not None and scale <= 0 else None


FIELDS = {"dtypes": {torch.float16}, "causal": "optional", "gqa": True, "strides": "last_contiguous"}
FIELDS |= {"softmax_scale": True, "accepts": accepts}
IMPLS = [
    Implementation(
        name="flashnn",
        forward=forward,
        # Head dims are those that the package asserts.
        supports={"cuda": Supports(**FIELDS, headdims={16, 32, 64, 128}), "cpu": Supports(**FIELDS, headdims={64})},
        outside="undefined",
        tile=(64, 64),
        traced=True,
        share={"cpu": 0.05},
        known_failures=Because(
            "finding #61: NaN with a scale of 0 or below", "seqlen_q=1 seqlen_k=1 headdim=64 dtype=float16"
        ).fail("scale_zero_is_q_zero softmax_scale=0.0"),
    )
]
