"""cuda-triton-multiarch 0.1.3: attention in Triton (forward alone); its module is named kernels.

flash_attention_bhsd is the documented function. Without the CUDA extensions, which are built apart,
it runs a kernel for one head. flash_attention_full_triton is in a module of its own.
"""

import sys
from unittest import mock

import torch

from flash_attest import Implementation, Precision, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of
from flash_attest.wild.known import Because, known

package = module_of("cuda_triton_multiarch", "kernels")
full = module_of("cuda_triton_multiarch", "kernels.flash_attention_full")


def bhsd(q, k, v, *, causal=False):
    """Call it with (batch, nheads, seqlen, headdim) x 3 -> out like q."""
    return package.flash_attention_bhsd(q, k, v, causal)


def full_bhsd(q, k, v, *, causal=False):
    """Call it with (batch, nheads, seqlen, headdim) x 3 -> out like q."""
    with mock.patch.object(sys, "path", list(sys.path)):  # each call makes it longer (finding #19)
        return full.flash_attention_full_triton(q, k, v, causal)


def not_empty(case):
    """Refuse empty tensors, for which there is nothing to launch."""
    return None if case.batch * case.seqlen_q * case.seqlen_k else "there is no query or no key"


def whole_tiles(case):
    """Refuse lengths that 64 does not divide."""
    return "lengths should be multiples of 64" if case.seqlen_q % 64 or case.seqlen_k % 64 else not_empty(case)


# The kernel of flash_attention_bhsd multiplies P and v as float32, and so as tf32.
OF_BHSD = Precision(probabilities="float32", multiply="tf32_cut")


def declare(name, function=bhsd, *, precision=OF_BHSD, known_failures=(), **supports):
    """Return the record of one function and the calls that are tried."""
    fields = {"dtypes": {torch.float16}, "headdims": {64}, "accepts": whole_tiles, **supports}
    return Implementation(
        name=f"cuda_triton_multiarch{name}",
        forward=adapted(function)[0],
        layout="bhsd",
        supports=Supports(**fields),
        outside="undefined",
        precision=precision,
        tile=(64, 64),
        traced=True,
        share={"cpu": 0.05},
        known_failures=known(*known_failures),
    )


PADDING = "finding #13: keys of the padding are counted"
CAUSAL = "finding #14: is_causal is ignored"
LENGTH = "finding #16: seqlen_k is ignored"
LAYOUT = "finding #17: strides are ignored"
SUM = "finding #21: l is summed in float16"
ROWS = "finding #20: rows of the last tile are written into the next head"
TILE, ONE = "seqlen_q=64 seqlen_k=64 headdim=64 dtype=float16", "seqlen_q=1 seqlen_k=1 headdim=64 dtype=float16"
LONGER, LAST = "seqlen_q=64 seqlen_k=128 headdim=64 dtype=float16", "seqlen_q=65 seqlen_k=65 headdim=64 dtype=float16"
CALLS = "other_calls_do_not_matter first_call_decides_nothing"
OF_ROWS = "every_column_of_headdim_matters memory_around_inputs_is_not_read order_of_keys_does_not_matter"
WRITTEN = "inputs_come_back_unchanged order_of_batches_and_heads_does_not_matter"

IMPLS = [
    declare(""),
    declare(
        "_ragged",
        accepts=not_empty,
        known_failures=[
            Because(PADDING, ONE).fail("""
                padding_keys_count_nothing ragged_sizes_match_the_definition out_matches_the_definition
                answers_follow_the_values shifting_all_scores_changes_only_lse regime=exact seed=119
            """),
            Because(PADDING).fail("tiny_scores_match_the_definition"),
            Because(PADDING, on="cuda").fail("""
                long_sequences_see_their_keys batches_beyond_65535 heads_beyond_65535
                tensors_beyond_2_31_elements
            """),
            Because(PADDING, every_run=False).fail(CALLS),
            Because(ROWS, LAST).fail("chunks_change_no_bit no_race_is_traced"),
            Because(ROWS).fail("huge_scores_match_the_definition"),
            Because(ROWS, on="cuda").fail("sanitizers_report_nothing"),
            # On a GPU, what they do depends on the order of tiles and on what lies behind out.
            Because(ROWS, LAST, on="cpu").fail(f"""
                {WRITTEN} {OF_ROWS} repeats_agree
                out_is_additive_in_v regime=exact
                winning_key_is_copied regime=selecting
            """),
            Because(ROWS, on="cuda", every_run=False).fail(f"""
                {WRITTEN} {OF_ROWS} repeats_agree out_is_additive_in_v winning_key_is_copied batch_changes_no_bit
            """),
        ],
    ),
    declare(
        "_cross",
        cross=True,
        known_failures=[
            Because(LENGTH, LONGER).fail("""
                ragged_sizes_match_the_definition out_matches_the_definition every_column_of_headdim_matters
                winning_key_is_copied regime=selecting
                huge_scores_match_the_definition regime=shifted_down
                tiny_scores_match_the_definition regime=flat
                chunks_change_no_bit seqlen_q=128 seqlen_k=64
                order_of_keys_does_not_matter
            """),
            Because(LENGTH, on="cuda").fail("keys_beyond_65535 neighbours_change_no_bit"),
            # What is read past the last key depends on what lies there.
            Because(LENGTH, on="cuda", every_run=False).fail("""
                long_sequences_see_their_keys queries_beyond_65535 work_waits_on_the_current_stream
                memory_around_inputs_is_not_read out_scales_with_v shifting_all_scores_changes_only_lse
            """),
        ],
    ),
    declare(
        "_causal",
        causal="optional",
        known_failures=[
            Because(CAUSAL, f"{TILE} causal=True").fail("""
                out_averages_exactly_its_prefix hidden_keys_change_no_bit row_that_sees_one_key_copies_it
                ragged_sizes_match_the_definition answers_follow_the_values
                huge_scores_match_the_definition regime=shifted_down
                tiny_scores_match_the_definition regime=flat
            """),
            Because(CAUSAL, on="cuda").fail("""
                prefix_alone_equals_prefix_of_the_whole long_sequences_see_their_keys
                tensors_beyond_2_31_elements chunks_change_no_bit
            """),
            Because(CAUSAL, every_run=False).fail(CALLS),
        ],
    ),
    declare(
        "_strides",
        strides="last_contiguous",
        known_failures=[
            Because(LAYOUT, TILE).fail("offsets_need_64_bits any_layout_equals_the_contiguous_one layout=gapped"),
            Because(LAYOUT, every_run=False).fail(CALLS),
        ],
    ),
    declare(
        "_full",
        full_bhsd,
        precision=Precision(row_sum="operand"),
        causal="optional",
        known_failures=[
            Because(SUM, f"{TILE} regime=shifted_down").fail("""
                ragged_sizes_match_the_definition answers_follow_the_values huge_scores_match_the_definition
                out_matches_the_definition seed=325
            """),
            Because(SUM, TILE).fail("order_of_keys_does_not_matter seed=2"),
            Because(SUM, on="cuda").fail("tiny_scores_match_the_definition"),
            Because(SUM, every_run=False).fail(CALLS),
            Because("finding #134: offsets have 32 bits").fail("tensors_beyond_2_31_elements"),
        ],
    ),
]
