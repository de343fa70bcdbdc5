"""pascal-attn 0.1.0: tiles and an online softmax in PyTorch, for GPUs without flash attention.

It documents an additive mask that is the same for all heads, and an out of (batch, seqlen_q,
nheads, headdim). A mask of more keys than there are is cut, without an error. A mask of one row is
declared for at most 64 queries (finding #82). Autograd differentiates the running maximum, too, and
sums dk and dv of tiles in the dtype of the inputs, which no field declares: the forward alone is
judged.
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
    if case.bias == "vector" and case.seqlen_q > 64:
        return "a mask of one row and more queries than a tile"
    return "the mask is the same for all heads" if case.bias is not None and case.bias_nheads > 1 else None


IMPLS = [
    Implementation(
        name="pascal_attn", forward=attention, layout="bhsd",
        supports=Supports(
            dtypes={torch.float32, torch.float16, torch.bfloat16}, headdims=range(1, 129), bias={"vector", "matrix"},
            cross=True, gqa=True, softmax_scale=True, strides=True, accepts=accepts,
        ),
        precision=Precision(probabilities="float32"), tile=(64, 64), outside="undefined",
    )
]  # fmt: skip
