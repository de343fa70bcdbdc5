"""noflash-attention 1.0.1: scaled_dot_product_attention in chunks, in PyTorch.

It has three kinds of chunks, from the fastest to the one that needs the least memory, and takes the
next one where memory runs out. The last two have no backward here. They are for float16: exp(-20)
takes the place of all smaller P, and is 0 there. In float32 hidden keys have it: finding #80.
"""

import os
from unittest.mock import patch as patched

import torch

from flash_attest import Implementation, Precision, Supports
from flash_attest.wild import module_of
from flash_attest.wild.known import Because, known

with patched.dict(os.environ, {"NOFLASH_DISABLE": "1"}):  # else it replaces PyTorch's function, as it documents
    patch = module_of("noflash_attention", "noflash_attention.patch")


def chunked(q, k, v, *, causal=False, bias=None, softmax_scale=None):
    """(batch, nheads, seqlen, headdim) x 3 -> out like q."""
    return patch.chunked_sdpa(q, k, v, softmax_scale, 16, attn_mask=bias, is_causal=causal)


def online(q, k, v, *, causal=False, bias=None, softmax_scale=None):
    """Do the same in tiles of 16 queries and 24 keys."""
    return patch.chunked_sdpa_online(q, k, v, softmax_scale, 16, 24, attn_mask=bias, is_causal=causal)


def inplace(q, k, v, *, causal=False, bias=None, softmax_scale=None):
    """Do the same with P in the memory of the scores."""
    return patch.chunked_sdpa_inplace(q, k, v, softmax_scale, 16, attn_mask=bias, is_causal=causal)


def keys(case):
    """Return None, or why a case is refused."""
    return "no keys: raises an error" if case.seqlen_k == 0 else None


def empty_row(case):
    """Return None, or why a case is refused: rows without keys are judged apart from the rest."""
    return None if case.bias and case.bias_mask == "dead_row" else "each row sees a key"


FLOAT32 = {"dtypes": {torch.float32}, "headdims": range(1, 129), "cross": True, "strides": True}
HALF = FLOAT32 | {
    "dtypes": {torch.float16},
    "causal": "optional",
    "bias": {"boolean_vector", "boolean_matrix"},
    "gqa": True,
    "softmax_scale": True,
}
BIASES = {"boolean_vector", "boolean_matrix", "vector", "matrix"}
COMMON = {"layout": "bhsd", "causal_alignment": "top_left", "tile": (16, 24)}
EMPTY = "finding #81: a mask of numbers gives NaN gradients"
OVERFLOW = "finding #123: sums of P v over a tile overflow"
LARGE = "seqlen_q=1 seqlen_k=24 headdim=8 dtype=float16 nheads=16 regime=one_sign seed=1"
DEAD = "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 bias=matrix bias_mask=dead_row"
IMPLS = [
    Implementation(
        name="noflash_attention",
        forward=chunked,
        backward="autograd",
        empty_rows="undefined",
        supports=Supports(**FLOAT32, causal="optional", gqa=True, softmax_scale=True, bias=BIASES),
        precision=Precision(scaled="q"),
        **COMMON,
    ),
    Implementation(
        name="noflash_attention_empty_rows",
        forward=chunked,
        backward="autograd",
        supports=Supports(**FLOAT32, bias={"matrix"}, accepts=empty_row),
        outside="undefined",
        precision=Precision(scaled="q"),
        known_failures=known(
            Because(EMPTY, DEAD).fail("""
                biased_attention_matches_the_definition no_dout_gives_no_gradient rows_without_keys_give_zero
                rows_without_keys_leave_the_others_alone ragged_sizes_match_the_definition
                answers_follow_the_values equal_values_give_no_score_gradient gradients_match_the_definition
                gradients_of_keys_sum_to_zero q_dq_equals_k_dk single_query_matches_the_definition
                tiny_scores_match_the_definition regime=flat
                huge_scores_match_the_definition regime=shifted_up
            """),
            Because(EMPTY, every_run=False).fail("other_calls_do_not_matter first_call_decides_nothing"),
        ),
        **COMMON,
    ),
    Implementation(
        name="noflash_attention_online",
        forward=online,
        supports=Supports(**HALF),
        precision=Precision(scaled="q", scores="operand", tile_sum=24),
        known_failures=known(
            Because(OVERFLOW, LARGE).fail(
                "out_matches_the_definition answers_follow_the_values single_query_matches_the_definition"
            ),
            Because(OVERFLOW, "seqlen_q=64 seqlen_k=64 headdim=64 dtype=float16 regime=one_sign seed=1").fail(
                "order_of_keys_does_not_matter"
            ),
        ),
        **COMMON,
    ),
    Implementation(
        name="noflash_attention_inplace",
        forward=inplace,
        supports=Supports(**HALF, accepts=keys),
        precision=Precision(scaled="q", scores="operand", statistics="operand", row_sum="operand"),
        **COMMON,
    ),
]
