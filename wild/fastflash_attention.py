"""fastflash-attention 0.2.0: bfloat16 in Triton, with a backward that is repeatable.

The README documents bfloat16, q, k and v of one shape, and head dims that are powers of two up to
128. The backward has four paths: for short sequences, for long ones, with dS stored in memory, and
with dq summed by atomics. The variants below run all but the one for long sequences.
"""

from unittest.mock import patch

import torch

from flash_attest import Implementation, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of
from flash_attest.wild.known import Because, known

package = module_of("fastflash_attention", "fastflash_attention")
kernel = module_of("fastflash_attention", "fastflash_attention._kernel")


def attention(q, k, v, *, causal=False, softmax_scale=None):
    """(batch, nheads, seqlen, headdim) x 3 -> out like q."""
    return package.fast_attention(q, k, v, is_causal=causal, scale=softmax_scale)


def with_lse(q, k, v, *, causal=False, softmax_scale=None):
    """Return out as training computes it, and lse (batch, nheads, seqlen) in base 2."""
    return kernel.fastflash_attn(q, k, v, causal, return_lse=True, scale=softmax_scale)


def atomic(q, k, v, *, causal=False, softmax_scale=None):
    """Take the documented option for less memory, in which atomics sum dq."""
    return kernel.fastflash_attn_train_fused_atomic(q, k, v, causal, softmax_scale)


forward, backward = adapted(attention)
forward_with_lse, _ = adapted(with_lse)
_, backward_atomic = adapted(atomic)


def backward_stored(*tensors, **keywords):
    """Store dS in memory, which the package does for long sequences."""
    with patch.object(kernel, "_DS_MIN_SD", 0):
        return backward(*tensors, **keywords)


def contiguous(case):
    """Return None, or why a case is refused: gradients of others are wrong."""
    return None if case.layout == "contiguous" else "gradients of other layouts are findings #26 and #27"


def supports(strides, accepts=None):
    """Return what the README documents, by device: each head dim is compiled on a CPU.

    Head dims of 8 and less, which do not compile (finding #28), are left out.
    """
    every = dict(dtypes={torch.bfloat16}, causal="optional", softmax_scale=True, strides=strides, accepts=accepts)
    return {"cpu": Supports(headdims={64}, **every), "cuda": Supports(headdims={16, 32, 64, 128}, **every)}


STRIDED = "finding #26: gradients read k and v by the strides of q"
OUTSIDE = "finding #27: gradients are stored by the strides of q, past the ends of dq, dk and dv"
PLAIN = "seqlen_q=1 seqlen_k=1 headdim=64 dtype=bfloat16"
COMMON = dict(layout="bhsd", traced=True, share={"cpu": 0.05}, tile=(64, 64))
CONTIGUOUS = dict(
    COMMON,
    supports=supports(False),
    known_failures=Because(STRIDED, PLAIN).fail("calls_outside_the_promise_raise_or_are_right"),
)
IMPLS = [
    Implementation(
        name="fastflash_attention",
        forward=forward,
        backward=backward,
        supports=supports(True, contiguous),
        known_failures=known(
            Because(STRIDED, PLAIN).fail("any_layout_equals_the_contiguous_one layout=last_strided"),
            Because(OUTSIDE, PLAIN).fail("""
                memory_around_inputs_is_not_read layout=last_strided
                inputs_come_back_unchanged nheads=2 layout=packed
            """),
        ),
        **COMMON,
    ),
    Implementation(name="fastflash_attention_strided", forward=forward, supports=supports(True), **COMMON),
    Implementation(
        name="fastflash_attention_lse", forward=forward_with_lse, backward=backward_stored, lse="log2", **CONTIGUOUS
    ),
    Implementation(
        name="fastflash_attention_atomic",
        forward=forward,
        backward=backward_atomic,
        repeatable={"out", "dk", "dv"},
        **CONTIGUOUS,
    ),
]
