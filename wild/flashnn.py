"""flashnn 0.1.1: FlashAttention v2 for inference, in Triton (float16).

Queries and keys are documented to have one length, and the last dimension to be contiguous.
"""

import torch

from flash_attest import Implementation, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of
from flash_attest.wild.known import Because, known

package = module_of("flashnn", "flashnn")


def attention(q, k, v, *, causal=False, softmax_scale=None):
    """Call it with (batch, seqlen, nheads, headdim) x 3 -> out like q."""
    return package.FlashAttention()(q, k, v, causal, softmax_scale)


forward, _ = adapted(attention)


def not_empty(case):
    """Refuse empty tensors, for which there is nothing to launch."""
    return None if case.batch * case.seqlen_q else "there is no query"


def declare(name, *, known_failures=(), **supports):
    """Return the record of one set of options. headdims are those that the package asserts."""
    fields = {"dtypes": {torch.float16}, "causal": "optional", "gqa": True, "softmax_scale": True, **supports}
    return Implementation(
        name=f"flashnn{name}",
        forward=forward,
        supports={
            "cuda": Supports(**fields, headdims={16, 32, 64, 128}),
            "cpu": Supports(**fields, headdims={64}),
        },
        outside="undefined",
        tile=(64, 64),
        traced=True,
        share={"cpu": 0.05},
        known_failures=known(*known_failures),
    )


SCALE = "finding #61: NaN with a scale of 0 or below"
ONE = "seqlen_q=1 seqlen_k=1 headdim=64 dtype=float16"
IMPLS = [
    declare("", strides="last_contiguous", softmax_scale="positive", accepts=not_empty),
    declare(
        "_any_scale",
        accepts=not_empty,
        known_failures=[
            Because(SCALE, f"{ONE} causal=True softmax_scale=-0.25").fail("""
                out_matches_the_definition row_that_sees_one_key_copies_it
                prefix_alone_equals_prefix_of_the_whole seqlen_q=64 seqlen_k=64
                chunks_change_no_bit seqlen_q=64 seqlen_k=64
            """),
            Because(SCALE, ONE).fail("""
                tiny_scores_match_the_definition softmax_scale=-0.0009765625 regime=flat
                long_sequences_see_their_keys seqlen_q=200 seqlen_k=200 softmax_scale=-0.25
                scale_zero_is_q_zero softmax_scale=0.0
                negative_scale_is_negated_q softmax_scale=0.5
            """),
            Because(SCALE).fail("out_is_additive_in_v") if torch.cuda.is_available() else {},
        ],
    ),
]
