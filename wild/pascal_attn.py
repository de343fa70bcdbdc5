"""pascal-attn 0.1.0: tiles and an online softmax in PyTorch, for GPUs without flash attention.

It documents an additive mask that is the same for all heads, and an out of (batch, seqlen_q,
nheads, headdim). In a half dtype autograd sums dk and dv from query tile to query tile in that
dtype, which the forward does not: gradients are judged in float32.
"""

import torch

from flash_attest import Implementation, Precision, Supports
from flash_attest.wild import module_of

package = module_of("pascal_attn", "pascal_attn")


def attention(q, k, v, *, bias=None, softmax_scale=None):
    """(batch, nheads, seqlen, headdim) x 3 -> out like q."""
    return package.tiled_attention(q, k, v, scale=softmax_scale, mask=bias, tile_size=64).transpose(1, 2)


def accepts(case):
    """Return why a case is refused; None if it is not."""
    return "the mask is the same for all heads" if case.bias is not None and case.bias_nheads > 1 else None


def implementation(name, dtypes, backward=None, bias=frozenset({"matrix"}), known=None):
    supports = Supports(
        dtypes=dtypes, headdims=range(1, 129), bias=bias, bias_grad=bool(backward), cross=True, gqa=True,
        softmax_scale=True, strides=True, accepts=accepts,
    )  # fmt: skip
    return Implementation(
        name=f"pascal_attn{name}", forward=attention, backward=backward, layout="bhsd", supports=supports,
        precision=Precision(probabilities="float32"), tile=(64, 64), known_failures=known or {},
    )  # fmt: skip


WHY = "finding #92: a mask of one row raises an error from 65 queries on"
ONE_ROW = dict.fromkeys(
    ("alibi_matches_the_definition",), (WHY, "seqlen_q=65 seqlen_k=1 headdim=1 bias=vector bias_mask=alibi")
)
IMPLS = [
    implementation("", {torch.float32}, "autograd"),
    implementation("_half", {torch.float16, torch.bfloat16}),
    implementation("_mask_of_one_row", {torch.float32}, "autograd", {"vector"}, known=ONE_ROW),
]
