"""flash-attn-triton 0.1.1: the Triton tutorial's kernel with the interface of FlashAttention-2.

The README documents head dims 16, 32, 64 and 128, and lengths that are multiples of 128 unless
causal. The package imports a module that Triton 3.7 does not have and uses nothing of it
(finding #42), so the adapter provides an empty one. Each call draws a random number (finding #44),
which breaks the contract: the adapter restores the generator. With one head the backward raises an
error (finding #45), so two or more are declared. Of negative scales, which give NaN, -0.5 alone
is declared.
"""

import sys
from importlib.util import find_spec
from types import ModuleType

import torch

from flash_attest import Implementation, Precision, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of, version_of
from flash_attest.wild.known import Because, known

MISSING = "triton.tools.experimental_descriptor"
if version_of("flash_attn_triton") and find_spec("triton") and not find_spec(MISSING):
    sys.modules.setdefault(MISSING, ModuleType(MISSING))
package = module_of("flash_attn_triton", "flash_attn_triton")


def attention(q, k, v, *, causal=False, softmax_scale=None):
    """(batch, seqlen, nheads, headdim), (batch, seqlen, nheads_k, headdim) x 2 -> out like q."""
    with torch.random.fork_rng():
        return package.flash_attn_func(q, k, v, softmax_scale=softmax_scale, causal=causal)


def accepts(case):
    """Return None, or why not."""
    if not case.causal and case.seqlen_q % 128:
        return "lengths should be multiples of 128 unless causal"
    if case.nheads == 1:
        return "one head is not taken by the backward, finding #45"
    return None if case.scale >= 0 or case.scale == -0.5 else "negative scales give NaN, finding #46"


def supports(headdims):
    """Return what the README documents, with these head dims."""
    return Supports(headdims=headdims, causal="optional", gqa=True, softmax_scale=True, strides=True, accepts=accepts)


PLAIN = "seqlen_q=128 seqlen_k=128 headdim=32 dtype=float16 nheads=2"
forward, backward = adapted(attention)
IMPLS = [
    Implementation(
        name="flash_attn_triton",
        forward=forward,
        backward=backward,
        supports={"cpu": supports({32}), "cuda": supports({16, 32, 64, 128})},
        precision=Precision(scaled_in_backward="k"),
        tile=(128, 64),
        traced=True,
        share={"cpu": 0.05},
        known_failures=known(
            Because("finding #43: the number of keys is taken from q", PLAIN).fail(
                "calls_outside_the_promise_raise_or_are_right"
            ),
            Because("finding #46: a negative scale gives NaN", PLAIN).fail(
                "negative_scale_is_negated_q softmax_scale=0.5 regime=peaked"
            ),
        ),
    )
]
