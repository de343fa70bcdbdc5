"""Bugs of merging parts in the Triton kernel: docs/why/bugs.md#forms."""

from typing import Any

import torch

from flash_attest.impls import Supports
from flash_attest.mutants.mutant import ONE, Mutant
from flash_attest.mutants.triton import build

LARGEST = "m_safe = tl.where(m == -INF, 0.0, m)"
WEIGHT = "weight = tl.exp2((lse - m_safe) * LOG2E)"
LSE = "m_safe + tl.log2(tl.where(empty, 1.0, l)) * LN2"
ROWS = "statistics = bh.to(tl.int64) * seqlen_q + i"
HEADS = "heads = batch.to(tl.int64) * nheads"
SECOND_LOOP = "    for part in range(num_parts):\n        lse ="


def planted(*, smallest: dict[str, Any] | None = None, **fields: Any) -> Mutant:
    """Return a mutant of the merge. smallest: fields in which the shrunk case may exceed ONE."""
    supports = Supports(dtypes={torch.float16}, headdims=range(1, 65), form="parts", splits=(1, 2, 3), cross=True)
    return build.planted(
        impl="triton_merge_parts", source="merge.py", declares=dict(supports=supports, share=0.01),
        smallest=ONE | (smallest or {}), **fields,
    )  # fmt: skip


MUTANTS = [
    planted(
        name="triton_merge_weights_lack_the_maximum",
        law="test_huge_scores_match_the_definition",
        edits=((LARGEST, "m_safe = tl.zeros_like(m)"),),
        story="exp(lse) overflows above 88, and is 0 below -104",
    ),
    planted(
        name="triton_merge_weights_are_powers_of_two",
        law="test_out_matches_the_definition",
        edits=((WEIGHT, "weight = tl.exp2(lse - m_safe)"),),
        smallest=dict(seqlen_k=2),
        story="the lse of the parts is natural, and taken for one in base 2",
    ),
    planted(
        name="triton_merge_lse_adds_a_logarithm_in_base_2",
        law="test_lse_matches_the_definition",
        edits=((LSE, LSE.removesuffix(" * LN2")),),
        smallest=dict(seqlen_k=2),
        story="m is natural, log2(l) is not: right where one part has all the weight",
    ),
    planted(
        name="triton_merge_parts_without_keys_give_nan",
        law="test_no_keys_give_zero",
        edits=((LARGEST, "m_safe = m"),),
        smallest=dict(seqlen_k=0),
        story="-inf - -inf where no part has a key",
    ),
    planted(
        name="triton_merge_lse_lies_as_out_does",
        law="test_out_matches_the_definition",
        edits=((ROWS, "statistics = (b.to(tl.int64) * seqlen_q + i) * nheads + h"),),
        smallest=dict(nheads=2, seqlen_q=2, seqlen_k=2),
        story="lse is taken for (batch, seqlen_q, nheads), as another library has it",
    ),
    planted(
        name="triton_merge_parts_have_one_batch",
        law="test_out_matches_the_definition",
        edits=((HEADS, "heads = nheads.to(tl.int64)"),),
        smallest=dict(batch=2),
        story="a part is taken to hold one batch: right for one sequence, or one part",
    ),
    planted(
        name="triton_merge_leaves_the_last_part_out",
        law="test_out_matches_the_definition",
        edits=((SECOND_LOOP, SECOND_LOOP.replace("num_parts", "tl.maximum(num_parts - 1, 1)")),),
        smallest=dict(seqlen_k=2),
        story="the first part is copied and the others are added, one too few of them",
    ),
]
