"""flash_attention_triton 0.1.1: FlashAttention-2 in Triton, always causal, in float16.

The README documents that inputs are converted to float16, so float16 is declared alone. Lengths may
differ; query i sees the keys 0 to i, as many as there are. Gradients are inference tensors
(finding #49), which breaks the contract: the adapter copies them, so that the laws judge their
values. Of negative scales, which give NaN, -0.5 alone is declared. Head dims above 128 cannot be
launched (finding #52).
"""

import torch

from flash_attest import Implementation, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of
from flash_attest.wild.known import Because, known

package = module_of("flash_attention_triton", "flash_attention_triton")


def attention(q, k, v, *, softmax_scale=None):
    """(batch, nheads, seqlen_q, headdim), (batch, nheads, seqlen_k, headdim) x 2 -> out like q."""
    return package.flash_attention_v2(q, k, v, softmax_scale)


def deterministic(q, k, v, *, softmax_scale=None):
    """Take the documented option, in which the backward sums dq without atomics."""
    return package.flash_attention_v2(q, k, v, softmax_scale, deterministic=True)


def few_negative(case):
    """Return None, or why not."""
    return None if case.scale >= 0 or case.scale == -0.5 else "negative scales give NaN, finding #51"


def supports(**scales):
    """Return what the README documents, by device: each head dim is compiled on a CPU."""
    every = dict(dtypes={torch.float16}, causal="always", cross=True, strides=True, **scales)
    return {"cpu": Supports(headdims={16}, **every), "cuda": Supports(headdims=range(1, 129), **every)}


def with_gradients(function):
    """Return (forward, backward), where backward copies the gradients out of inference mode."""
    forward, backward = adapted(function)
    return forward, lambda *tensors, **keywords: tuple(x.clone() for x in backward(*tensors, **keywords))


forward, backward = with_gradients(attention)
forward_deterministic, backward_deterministic = with_gradients(deterministic)
COMMON = dict(
    layout="bhsd",
    causal_alignment="top_left",
    empty_rows="undefined",
    tile=(256, 256),
    traced=True,
    share={"cpu": 0.05},
)
PLAIN = "seqlen_q=2 seqlen_k=2 headdim=16 dtype=float16 causal=True"
IMPLS = [
    Implementation(
        name="flash_attention_triton",
        forward=forward,
        backward=backward,
        supports=supports(softmax_scale=True, accepts=few_negative),
        repeatable={"out", "dk", "dv"},
        known_failures=known(
            Because("finding #50: a scale of 0 is taken for None", PLAIN).fail(
                "scale_zero_is_q_zero softmax_scale=0.0"
            ),
            Because("finding #51: a negative scale gives NaN", PLAIN).fail(
                "negative_scale_is_negated_q softmax_scale=0.5"
            ),
        ),
        **COMMON,
    ),
    Implementation(
        name="flash_attention_triton_deterministic",
        forward=forward_deterministic,
        backward=backward_deterministic,
        supports=supports(softmax_scale="positive"),
        **COMMON,
    ),
]
