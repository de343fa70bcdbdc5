"""cuda-triton-multiarch 0.1.3: attention in Triton (forward alone); its module is named kernels.

flash_attention_bhsd is the documented function. Without the CUDA extensions, which are built apart,
it runs a kernel for one head. flash_attention_full_triton is in a module of its own.
"""

import sys
from unittest import mock

import torch

from flash_attest import Implementation, KnownFailure, Precision, Supports
from flash_attest.adapters import adapted
from flash_attest.wild import module_of

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
        known_failures=dict(known_failures),
    )


PADDING = "finding #13: keys of the padding are counted"
CAUSAL = "finding #14: is_causal is ignored"
LENGTH = "finding #16: seqlen_k is ignored"
LAYOUT = "finding #17: strides are ignored"
SUM = "finding #21: l is summed in float16"
ROWS = "finding #20: rows of the last tile are written into the next head"
TILE, ONE = "seqlen_q=64 seqlen_k=64 headdim=64 dtype=float16", "seqlen_q=1 seqlen_k=1 headdim=64 dtype=float16"
LONGER, LAST = "seqlen_q=64 seqlen_k=128 headdim=64 dtype=float16", "seqlen_q=65 seqlen_k=65 headdim=64 dtype=float16"

# On a GPU, what rows of the last tile do depends on the order of tiles and on what lies behind out.
WRITTEN = {"cpu": (ROWS, LAST), "cuda": KnownFailure(ROWS, every_run=False)}
# So does what is read past the last key.
READ = {"cuda": KnownFailure(LENGTH, every_run=False)}

IMPLS = [
    declare(""),
    declare(
        "_ragged",
        accepts=not_empty,
        known_failures={
            "padding_keys_count_nothing": (PADDING, ONE),
            "ragged_sizes_match_the_definition": (PADDING, ONE),
            "out_matches_the_definition": (PADDING, ONE),
            "answers_follow_the_values": (PADDING, ONE),
            "tiny_scores_match_the_definition": (PADDING, ONE),
            "shifting_all_scores_changes_only_lse": (PADDING, f"{ONE} regime=exact seed=119"),
            "huge_scores_match_the_definition": (ROWS, LAST),
            "inputs_come_back_unchanged": WRITTEN,
            "out_is_additive_in_v": WRITTEN,
            "order_of_batches_and_heads_does_not_matter": WRITTEN,
            "batch_changes_no_bit": {"cuda": WRITTEN["cuda"]},
            "sanitizers_report_nothing": {"cuda": ROWS},
            **{
                key: {"cuda": PADDING}
                for key in (
                    "long_sequences_see_their_keys",
                    "batches_beyond_65535",
                    "heads_beyond_65535",
                    "tensors_beyond_2_31_elements",
                    "other_calls_do_not_matter",
                    "first_call_decides_nothing",
                )
            },
            "repeats_agree": (ROWS, LAST),
            "chunks_change_no_bit": (ROWS, LAST),
            "no_race_is_traced": (ROWS, LAST),
        },
    ),
    declare(
        "_cross",
        cross=True,
        known_failures={
            "ragged_sizes_match_the_definition": (LENGTH, LONGER),
            "out_matches_the_definition": (LENGTH, LONGER),
            "every_column_of_headdim_matters": (LENGTH, LONGER),
            "winning_key_is_copied": (LENGTH, f"{LONGER} regime=selecting"),
            "huge_scores_match_the_definition": (LENGTH, f"{LONGER} regime=shifted_down"),
            "tiny_scores_match_the_definition": (LENGTH, f"{LONGER} regime=flat"),
            "chunks_change_no_bit": (LENGTH, "seqlen_q=128 seqlen_k=64 headdim=64 dtype=float16"),
            "keys_beyond_65535": {"cuda": LENGTH},
            "order_of_keys_does_not_matter": {"cuda": LENGTH},
            "neighbours_change_no_bit": {"cuda": LENGTH},
            **dict.fromkeys(
                (
                    "long_sequences_see_their_keys",
                    "queries_beyond_65535",
                    "work_waits_on_the_current_stream",
                    "memory_around_inputs_is_not_read",
                    "out_scales_with_v",
                    "shifting_all_scores_changes_only_lse",
                ),
                READ,
            ),
        },
    ),
    declare(
        "_causal",
        causal="optional",
        known_failures={
            "out_averages_exactly_its_prefix": (CAUSAL, f"{TILE} causal=True"),
            "hidden_keys_change_no_bit": (CAUSAL, f"{TILE} causal=True"),
            "row_that_sees_one_key_copies_it": (CAUSAL, f"{TILE} causal=True"),
            "ragged_sizes_match_the_definition": (CAUSAL, f"{TILE} causal=True"),
            "answers_follow_the_values": (CAUSAL, f"{TILE} causal=True"),
            "huge_scores_match_the_definition": (CAUSAL, f"{TILE} causal=True regime=shifted_down"),
            "tiny_scores_match_the_definition": (CAUSAL, f"{TILE} causal=True regime=flat"),
            **{
                key: {"cuda": CAUSAL}
                for key in (
                    "prefix_alone_equals_prefix_of_the_whole",
                    "long_sequences_see_their_keys",
                    "tensors_beyond_2_31_elements",
                    "chunks_change_no_bit",
                    "other_calls_do_not_matter",
                )
            },
        },
    ),
    declare(
        "_strides",
        strides="last_contiguous",
        known_failures={
            "any_layout_equals_the_contiguous_one": (LAYOUT, f"{TILE} layout=gapped"),
            "offsets_need_64_bits": (LAYOUT, TILE),
            "other_calls_do_not_matter": {"cuda": LAYOUT},
        },
    ),
    declare(
        "_full",
        full_bhsd,
        precision=Precision(row_sum="operand"),
        causal="optional",
        known_failures={
            "ragged_sizes_match_the_definition": (SUM, f"{TILE} regime=shifted_down"),
            "out_matches_the_definition": (SUM, f"{TILE} regime=shifted_down seed=325"),
            "answers_follow_the_values": (SUM, f"{TILE} regime=shifted_down"),
            "huge_scores_match_the_definition": (SUM, f"{TILE} regime=shifted_down"),
            "order_of_keys_does_not_matter": (SUM, f"{TILE} seed=2"),
            "tiny_scores_match_the_definition": {"cuda": SUM},
            "other_calls_do_not_matter": {"cuda": SUM},
            "first_call_decides_nothing": {"cuda": SUM},
            "tensors_beyond_2_31_elements": "finding #134: offsets have 32 bits",
        },
    ),
]
