"""simpler-flash 1.3.5: its FlashAttention in Triton. The mask of causal is aligned top left.

The module is imported without the package's __init__, which needs torchvision and einops. A bias is
left out: its documented shape raises an error. As it is, the contract check fails, and nothing else
is judged: gradients are inference tensors. So another variant copies them. Its backward reads what
the forward's race leaves. The last variant has few queries, other scales and no backward.
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


def few_queries(case):
    """Return None, or why it is refused: few rows do not show the race."""
    return None if case.seqlen_q <= 8 else "more than 8 queries"


def flash_attention(name, backward, known, **supports):
    """Return an Implementation of the package, with the laws that are known to fail."""
    common = dict(dtypes={torch.float16}, causal="optional", cross=True) | supports
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


RACE = "finding #192: factors of rows are read before they are written"
SQUARE = "seqlen_q=33 seqlen_k=33 headdim=64 dtype=float16"
ONE_KEY = "seqlen_q=49 seqlen_k=1 headdim=64 dtype=float16"
SMALL = "seqlen_q=24 seqlen_k=24 headdim=64 dtype=float16"
NEGATIVE = "finding #194: the least score is taken for the maximum"
SCALED = "seqlen_q=1 seqlen_k=1 headdim=64 dtype=float16"

IMPLS = [
    flash_attention("", backward, {"contract_is_kept": "finding #191: gradients are inference tensors"}),
    flash_attention(
        "_copied",
        copied,
        {
            "ragged_sizes_match_the_definition": (RACE, f"{SQUARE} regime=shifted_down"),
            "huge_scores_match_the_definition": (RACE, f"{SQUARE} regime=shifted_down"),
            "answers_follow_the_values": (RACE, f"{SQUARE} regime=shifted_down"),
            "gradients_match_the_definition": (RACE, SQUARE),
            "equal_values_give_no_score_gradient": (RACE, SQUARE),
            "out_matches_the_definition": (RACE, "seqlen_q=33 seqlen_k=2 headdim=64 dtype=float16"),
            "single_key_is_copied": (RACE, ONE_KEY),
            "what_memory_held_before_does_not_matter": (RACE, ONE_KEY),
            "out_is_additive_in_v": (RACE, f"{ONE_KEY} regime=exact"),
            "repeats_agree": (RACE, SMALL),
            "copies_agree": (RACE, f"{SMALL} nheads=2"),
            "no_race_is_traced": (RACE, SQUARE),
        },
    ),
    flash_attention(
        "_scaled",
        None,
        {
            "scale_zero_is_q_zero": ("finding #193: a scale of 0 is taken for None", f"{SCALED} softmax_scale=0.0"),
            "negative_scale_is_negated_q": (NEGATIVE, f"{SCALED} softmax_scale=0.5"),
            "lse_matches_the_definition": (NEGATIVE, f"{SCALED} causal=True softmax_scale=-0.25"),
            "padding_keys_count_nothing": (NEGATIVE, f"{SCALED} softmax_scale=-0.25"),
            "row_that_sees_one_key_copies_it": (NEGATIVE, f"{SCALED} causal=True softmax_scale=-0.25"),
            "offsets_need_64_bits": (
                "finding #189: offsets have 32 bits",
                "seqlen_q=4 seqlen_k=4 headdim=64 dtype=float16 batch=2 nheads=2",
            ),
        },
        softmax_scale=True,
        strides=True,
        accepts=few_queries,
    ),
]
