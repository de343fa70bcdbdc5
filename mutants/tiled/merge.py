"""Bugs of a merge of parts of the keys: docs/why/bugs.md#forms."""

from functools import partial

from flash_attest.mutants.mutant import ONE
from flash_attest.mutants.tiled.build import planted

planted = partial(planted, impl="python_tiled_merge")

SAFE = "    m_safe = m.masked_fill(m == -INF, 0.0)"
WEIGHT = "        weight = torch.exp(lse_n - m_safe)\n"
RESULT = "return torch.where(l == 0, 0.0, acc / l), m + torch.log(l)"
ROWS_FIRST = "lse_parts.transpose(2, 3).unsqueeze(4)"

MUTANTS = [
    planted(
        name="merge_subtracts_no_maximum",
        law="test_huge_scores_match_the_definition",
        edits=((SAFE, "    m_safe = torch.zeros_like(m)"), (RESULT, RESULT.replace("m + ", ""))),
        smallest=ONE,
        story="exp(lse) of a part overflows where scores are large",
    ),
    planted(
        name="merge_of_parts_without_keys_gives_nan",
        law="test_no_keys_give_zero",
        edits=((SAFE, "    m_safe = m"),),
        smallest=ONE | dict(seqlen_k=0),
        story="-inf - -inf is NaN where a row sees no key in any part",
    ),
    planted(
        name="merge_takes_lse_for_base_2",
        law="test_out_matches_the_definition",
        edits=((WEIGHT, WEIGHT.replace("exp", "exp2")),),
        smallest=ONE | dict(seqlen_k=2),
        story="parts come with a natural lse, and the kernel counts in base 2",
    ),
    planted(
        name="merge_weighs_all_parts_alike",
        law="test_out_matches_the_definition",
        edits=((WEIGHT, "        weight = (lse_n > -INF).float()\n"),),
        smallest=ONE | dict(seqlen_k=2),
        story="out is the mean of the parts",
    ),
    planted(
        name="merged_lse_is_the_largest",
        law="test_lse_matches_the_definition",
        edits=((RESULT, RESULT.replace("m + torch.log(l)", "m")),),
        smallest=ONE | dict(seqlen_k=2),
        story="the log of the sum of weights is not added: out is right, and the next merge is not",
    ),
    planted(
        name="merge_reads_lse_with_queries_before_heads",
        law="test_out_matches_the_definition",
        edits=((ROWS_FIRST, "lse_parts.reshape(parts, batch, seqlen_q, nheads, 1)"),),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2, nheads=2),
        story="out has heads behind queries, lse before them, and both are read by the strides of out",
    ),
    planted(
        name="merge_ends_at_the_first_part_without_keys",
        law="test_out_matches_the_definition",
        edits=((WEIGHT, "        if (lse_n == -INF).all():\n            break\n" + WEIGHT),),
        smallest=ONE,
        story="empty parts are taken to be the last ones, and one may come first",
    ),
    planted(
        name="weights_of_the_merge_are_rounded_to_half",
        law="test_out_matches_the_definition",
        edits=((WEIGHT, WEIGHT.replace("\n", ".half().float()\n")),),
        smallest=ONE | dict(seqlen_k=2),
        story="a weight is multiplied in the dtype of out",
    ),
]
