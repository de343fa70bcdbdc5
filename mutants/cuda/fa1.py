"""Bugs of FlashAttention-1 forward in CUDA: statistics and sums that live in global memory."""

from flash_attest.mutants.cuda.build import FORWARD, planted, supporting
from flash_attest.mutants.mutant import TRACED

FILE, FA1 = "fa1_forward.cuh", "cuda_fa1"

MUTANTS = [
    planted(
        "fa1_statistics_are_written_by_all_lanes",
        TRACED,
        FILE,
        (
            (
                "if (keeps && lane() == r) l[i0 + kept] = l_new, m[i0 + kept] = m_new;",
                "if (row(r) < rows) l[i0 + row(r)] = l_new, m[i0 + row(r)] = m_new;",
            ),
        ),
        "threads that share a row write its maximum and sum without synchronisation: right as long as they agree",
        FORWARD,
        impl=FA1,
    ),
    planted(
        "fa1_statistics_are_those_of_the_other_group",
        "test_order_of_keys_does_not_matter",
        FILE,
        (("__shfl_sync(WARP, m_kept, r, LANES)", "__shfl_sync(WARP, m_kept, r)"),),
        "a shuffle without its width: half of the warp gets another row's old maximum",
        supporting(backward=False),
        dict(seqlen_q=17, seqlen_k=17),
        impl=FA1,
    ),
    planted(
        "fa1_out_is_rescaled_without_the_sum",
        "test_out_matches_the_definition",
        FILE,
        (("0.0f : before / l_new;", "0.0f : __expf(m_old - finite(m_new));"),),
        "out is kept divided by l, so a new l must multiply by the old one, which is missing",
        FORWARD,
        dict(seqlen_k=17),
        impl=FA1,
    ),
    planted(
        "fa1_sum_is_not_rescaled",
        "test_lse_matches_the_definition",
        FILE,
        (("before + now * l_tile;", "before + l_tile;"),),
        "a tile's sum is relative to the tile's maximum, and is added unscaled",
        FORWARD,
        dict(seqlen_k=17),
        impl=FA1,
    ),
    planted(
        "fa1_values_are_those_of_the_first_head",
        "test_order_of_batches_and_heads_does_not_matter",
        FILE,
        (("p.v.row(b, j0, h_k)", "p.v.row(b, j0, 0)"),),
        "a head's offset is missing",
        FORWARD,
        dict(nheads=3),
        impl=FA1,
    ),
    planted(
        "fa1_out_is_not_cleared_before_it_is_summed",
        "test_what_memory_held_before_does_not_matter",
        FILE,
        (("        store_rows<TM, D>(accumulated + i0 * stride, stride, p.seqlen_q - i0, p.headdim, O, one);\n", ""),),
        "the kernel adds to out and assumes zeros, which only memory fresh from the system holds",
        FORWARD,
        impl=FA1,
    ),
    planted(
        "fa1_statistics_begin_as_memory_was",
        "test_what_memory_held_before_does_not_matter",
        FILE,
        (("l[i0 + kept] = 0.0f, m[i0 + kept] = -INFINITY;", ";"),),
        "l and m are assumed to be 0 and -inf before they are written",
        FORWARD,
        impl=FA1,
    ),
    planted(
        "fa1_keys_are_as_many_as_queries",
        "test_single_query_matches_the_definition",
        FILE,
        (("p.seqlen_q ? p.keys_of(p.seqlen_q - 1) : 0;", "p.seqlen_q;"),),
        "one length for both: written for self-attention",
        FORWARD,
        dict(seqlen_k=17),
        impl=FA1,
    ),
]
