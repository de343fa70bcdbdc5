"""simpler-flash 1.3.5: its FlashAttention in Triton. The mask of causal is aligned top left.

The module is imported without the package's __init__, which needs torchvision and einops. A bias is
left out: its documented shape raises an error. As it is, the contract check fails, and nothing else
is judged: gradients are inference tensors. So the other variant copies them.
"""

import importlib.util
import sys

import torch

from flash_attest import Implementation, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of

if spec := importlib.util.find_spec("simpler_flash"):
    sys.modules.setdefault("simpler_flash", importlib.util.module_from_spec(spec))
flash = module_of("simpler_flash", "simpler_flash.flashattention")


def attention(q, k, v, *, causal=False, softmax_scale=None):
    """(batch, seqlen, nheads, headdim) x 3 -> out like q, lse (batch, nheads, seqlen_q)."""
    out, lse = flash.flash_attn_func(q, k, v, None, causal, softmax_scale)
    return out, lse[..., : q.shape[1]]  # lse is padded to whole tiles


forward, backward = adapted(attention)


def copied(*tensors, **keywords):
    """Return copies of dq, dk and dv."""
    return tuple(gradient.clone() for gradient in backward(*tensors, **keywords))


def flash_attention(name, backward, known):
    """Return an Implementation of the package, with the laws that are known to fail."""
    common = dict(dtypes={torch.float16}, causal="optional", cross=True, softmax_scale=True, strides=True)
    return Implementation(
        name=f"simpler_flash{name}",
        forward=forward,
        backward=backward,
        supports={
            "cpu": Supports(headdims={64}, **common),
            "cuda": Supports(headdims=range(8, 129, 8), **common),
        },
        causal_alignment="top_left",
        lse="natural",
        empty_rows="undefined",
        outside="undefined",
        repeatable={"out", "dk", "dv"},
        tile=(64, 64),
        traced=True,
        share={"cpu": 0.02},
        known_failures=known,
    )


IMPLS = [
    flash_attention("", backward, {"contract_is_kept": "finding #191: gradients are inference tensors"}),
    flash_attention("_copied", copied, {}),
]
