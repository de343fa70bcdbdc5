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


def plain(case):
    """Refuse all that is known to be wrong."""
    if case.seqlen_q % 64 or case.seqlen_k % 64:
        return "lengths that 64 does not divide are findings #13 and #20"
    if case.causal or case.seqlen_q != case.seqlen_k or case.layout != "contiguous":
        return "causal is finding #14, other lengths of keys are #16, other layouts #17"
    return not_empty(case)


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


SUM = "finding #21: l is summed in float16"
TILE = "seqlen_q=64 seqlen_k=64 headdim=64 dtype=float16"

IMPLS = [
    declare(
        "",
        accepts=plain,
        causal="optional",
        cross=True,
        strides="last_contiguous",
        known_failures=[
            Because("finding #13: keys of the padding are counted").fail(
                "padding_keys_count_nothing seqlen_q=1 seqlen_k=1 headdim=64 dtype=float16"
            ),
            Because("finding #14: is_causal is ignored", TILE).fail("out_averages_exactly_its_prefix causal=True"),
            Because("finding #16: seqlen_k is ignored", TILE).fail("every_column_of_headdim_matters seqlen_k=128"),
            Because("finding #17: strides are ignored", TILE).fail(
                "offsets_need_64_bits any_layout_equals_the_contiguous_one layout=gapped"
            ),
            Because("finding #20: rows of the last tile are written into the next head").fail(
                "no_race_is_traced seqlen_q=65 seqlen_k=65 headdim=64 dtype=float16"
            ),
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
            Because(SUM, every_run=False).fail("other_calls_do_not_matter first_call_decides_nothing"),
            Because("finding #134: offsets have 32 bits").fail("tensors_beyond_2_31_elements"),
        ],
    ),
]
