"""simpler-flash 1.3.5: its FlashAttention in Triton. The mask of causal is aligned top left.

The module is imported without the package's __init__, which needs torchvision and einops. A bias is
left out: its documented shape raises an error. So is the backward: gradients are inference tensors,
which break the contract (finding #95), and follow from what the forward's race leaves in out. With
more than 8 queries the race leaves other values in out from run to run in the emulator (finding
#96), where laws about values, copies, repeats and memory fail. So they are judged on a GPU alone,
where single rows are wrong, not on every run.
"""

import importlib.util
import sys

import torch

from flash_attest import Implementation, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of
from flash_attest.wild.known import Because, known

if spec := importlib.util.find_spec("simpler_flash"):
    sys.modules.setdefault("simpler_flash", importlib.util.module_from_spec(spec))
flash = module_of("simpler_flash", "simpler_flash.flashattention")


def attention(q, k, v, *, causal=False, softmax_scale=None):
    """(batch, seqlen, nheads, headdim) x 3 -> out like q, lse (batch, nheads, seqlen_q)."""
    out, lse = flash.flash_attn_func(q, k, v, None, causal, softmax_scale)
    return out, lse[..., : q.shape[1]]  # lse is padded to whole tiles


forward, _ = adapted(attention)


def few_queries(case):
    """Return None, or why it is refused: few rows do not show the race."""
    if case.softmax_scale is not None and case.softmax_scale <= 0:
        return "a scale of 0 or below: findings #97 and #98"
    return None if case.seqlen_q <= 8 else "more than 8 queries"


def flash_attention(name, known_failures, devices=("cpu", "cuda"), **supports):
    """Return an Implementation of the package, with the laws that are known to fail."""
    common = dict(dtypes={torch.float16}, causal="optional", cross=True, accepts=few_queries) | supports
    return Implementation(
        name=f"simpler_flash{name}",
        forward=forward,
        devices=devices,
        supports={
            device: Supports(headdims={64} if device == "cpu" else range(8, 65, 8), **common) for device in devices
        },
        causal_alignment="top_left",
        lse="natural",
        empty_rows="undefined",
        outside="undefined",
        tile=(64, 64),
        traced="cpu" in devices,
        share={"cpu": 0.02} if "cpu" in devices else 1.0,
        known_failures=known(*known_failures),
    )


def many_queries(case):
    """Return None, or why it is refused."""
    return None if case.seqlen_q > 8 else "few queries"


RACE = "finding #96: factors of rows are read before they are written"
OFFSETS = "finding #93: offsets have 32 bits"
ONE = "seqlen_q=1 seqlen_k=1 headdim=64 dtype=float16"
IMPLS = [
    flash_attention(
        "",
        [
            Because(RACE, ONE).fail("no_race_is_traced seed=4"),
            Because("finding #97: a scale of 0 is taken for None", ONE).fail("scale_zero_is_q_zero softmax_scale=0.0"),
            Because("finding #98: the least score is taken for the maximum", ONE).fail(
                "single_key_is_copied causal=True softmax_scale=-0.25"
            ),
            Because(OFFSETS).fail(
                "offsets_need_64_bits seqlen_q=4 seqlen_k=4 headdim=64 dtype=float16 batch=2 nheads=2"
            ),
        ],
        softmax_scale=True,
        strides=True,
    ),
]
if torch.cuda.is_available():
    RACED = Because(RACE, every_run=False).fail("""
        answers_follow_the_values batch_changes_no_bit chunks_change_no_bit copies_agree every_column_of_headdim_matters
        first_call_decides_nothing hidden_keys_change_no_bit huge_scores_match_the_definition
        memory_around_inputs_is_not_read neighbours_change_no_bit one_tensor_may_be_q_k_and_v
        order_of_batches_and_heads_does_not_matter order_of_keys_does_not_matter other_calls_do_not_matter
        out_averages_exactly_its_prefix out_is_additive_in_v out_matches_the_definition out_scales_with_v
        outputs_may_be_written_to prefix_alone_equals_prefix_of_the_whole queries_beyond_65535
        ragged_sizes_match_the_definition repeats_agree shifting_all_scores_changes_only_lse single_key_is_copied
        split_keys_merge_by_lse tiny_scores_match_the_definition what_memory_held_before_does_not_matter
        winning_key_is_copied work_waits_on_the_current_stream
    """)
    BEYOND = Because(OFFSETS).fail("tensors_beyond_2_31_elements")
    IMPLS += [flash_attention("_many_queries", [RACED, BEYOND], {"cuda"}, accepts=many_queries)]
