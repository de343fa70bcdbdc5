"""ffpa-attn 0.2.4: head dims of 320 to 1024, in Triton.

It documents that fewer than 512 keys, and 8 to 511 queries, go to PyTorch. The variable that it has
for its own tests makes such calls take its kernels, too. It documents causal for at most as many
queries as keys, and not together with a mask.
"""

import os
from unittest.mock import patch

from flash_attest import Implementation, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of

package = module_of("ffpa_attn", "ffpa_attn")


def attention(q, k, v, *, causal=False, bias=None, softmax_scale=None):
    """(batch, nheads, seqlen, headdim) x 3 -> out like q."""
    with patch.dict(os.environ, FFPA_FORCE_NO_SDPA_FALLBACK="1"):
        return package.ffpa_attn_func(q, k, v, bias, is_causal=causal, scale=softmax_scale, enable_gqa=True)


def accepts(case):
    """Return why a case is refused; None if it is not."""
    if case.causal and (case.bias is not None or case.seqlen_k < case.seqlen_q):
        return "causal takes no mask, and at most as many queries as keys"
    return None


def implementation(name, known=None, **features):
    forward, backward = adapted(attention, bias_grad="bias_grad" in features)
    same = dict(cross=True, gqa=True, softmax_scale=True, strides=True, accepts=accepts) | features
    return Implementation(
        name=f"ffpa_attn{name}", forward=forward, backward=backward, layout="bhsd",
        supports={
            "cpu": Supports(headdims={320}, **same),
            "cuda": Supports(headdims=range(320, 1025, 64), **same),
        },
        traced=True, share={"cpu": 0.02}, known_failures=known or {},
    )  # fmt: skip


IMPLS = [
    implementation("", causal="optional"),
    implementation("_biased", bias={"vector", "matrix", "boolean_vector", "boolean_matrix"}, bias_grad=True),
]
