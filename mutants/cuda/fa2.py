"""Bugs of FlashAttention-2 forward in CUDA: running maximum and sum, the last tile, wide heads."""

from flash_attest.mutants.cuda.build import FORWARD, planted, supporting
from flash_attest.mutants.mutant import CONTRACT, TRACED

FILE, WIDE = "fa2_forward.cuh", "cuda_fa2_wide"

MUTANTS = [
    planted(
        "fa2_out_is_not_rescaled",
        "test_order_of_keys_does_not_matter",
        FILE,
        (("O[r][n] *= alpha;", "O[r][n] *= 1.0f;"),),
        "alpha is missing in O",
        supporting(backward=False),
        dict(seqlen_q=17, seqlen_k=17),
    ),
    planted(
        "fa2_sum_is_not_rescaled",
        "test_split_keys_merge_by_lse",
        FILE,
        (("            l[r] *= alpha;\n", ""),),
        "alpha is missing in l",
        FORWARD,
        dict(nheads=2, seqlen_q=3, seqlen_k=17),
    ),
    planted(
        "fa2_maximum_is_not_kept",
        "test_out_averages_exactly_its_prefix",
        FILE,
        (("            m[r] = m_new;\n", ""),),
        "the running maximum keeps its initial value: each tile cancels the ones before",
        supporting(backward=False, causal="optional"),
        dict(seqlen_q=17, seqlen_k=17, headdim=2),
    ),
    planted(
        "fa2_maximum_starts_at_zero",
        "test_huge_scores_match_the_definition",
        FILE,
        (("m[r] = -INFINITY, l[r] = 0.0f;", "m[r] = 0.0f, l[r] = 0.0f;"),),
        "exp(S - 0) is 0 in a row whose scores are all very negative",
        FORWARD,
    ),
    planted(
        "fa2_maximum_is_taken_before_a_negative_scale",
        "test_huge_scores_match_the_definition",
        FILE,
        (
            (
                "for (int c = 1; c < TN; ++c) m_new = fmaxf(m_new, S[r][c]);\n"
                "            m_new = fmaxf(m[r], maximum_of_lanes(m_new));",
                "for (int c = 1; c < TN; ++c) m_new = fmaxf(m_new, S[r][c]);\n"
                "            if (p.softmax_scale < 0.0f) m_new = -maximum_of_lanes(-m_new);\n"
                "            m_new = fmaxf(m[r], maximum_of_lanes(m_new));",
            ),
        ),
        "with a negative scale the maximum becomes the minimum, and exp(S - minimum) overflows",
        supporting(backward=False, softmax_scale=True),
        dict(seqlen_q=2, seqlen_k=2),
    ),
    planted(
        "fa2_rows_without_keys_are_divided_by_zero",
        "test_rows_without_keys_give_zero",
        FILE,
        (("factor[r] = l[r] == 0.0f ? 0.0f : 1.0f / l[r];", "factor[r] = 1.0f / l[r];"),),
        "out = 0 / 0 where a query sees no key",
        supporting(backward=False, causal="optional", cross=True),
        dict(seqlen_q=2),
    ),
    planted(
        "fa2_lse_is_the_logarithm_of_the_sum",
        "test_shifting_all_scores_changes_only_lse",
        FILE,
        (("-INFINITY : m[r] + logf(l[r]);", "-INFINITY : logf(l[r]);"),),
        "m is missing in lse",
        FORWARD,
    ),
    planted(
        "fa2_lse_is_in_base_2",
        CONTRACT,
        FILE,
        (("m[r] + logf(l[r]);", "1.44269504f * m[r] + log2f(l[r]);"),),
        "the kernel works with exp2 and returns its own lse",
        FORWARD,
    ),
    planted(
        "fa2_lse_of_every_batch_is_that_of_the_first",
        "test_what_memory_held_before_does_not_matter",
        FILE,
        (("lse[(int64_t(b) * p.nheads + h) * p.seqlen_q + first_query", "lse[int64_t(h) * p.seqlen_q + first_query"),),
        "a block's offset is missing in lse; a single batch hides it",
        FORWARD,
        dict(batch=3),
    ),
    planted(
        "fa2_lse_is_written_by_every_piece",
        TRACED,
        FILE,
        ((" && first_column == 0)", ")"),),
        "blocks that share a query tile all write its lse: the same value, but still a race",
        supporting(backward=False, headdims=range(33, 129)),
        dict(headdim=33),
        impl=WIDE,
    ),
    planted(
        "fa2_values_are_the_first_columns",
        "test_every_column_of_headdim_matters",
        FILE,
        (("p.v.row(b, first_key, h_k) + first_column,", "p.v.row(b, first_key, h_k),"),),
        "a block owns some columns of out, but multiplies by the first columns of V",
        supporting(backward=False, headdims=range(33, 129)),
        dict(headdim=33),
        impl=WIDE,
    ),
    planted(
        "fa2_last_tile_of_keys_is_dropped",
        "test_single_key_is_copied",
        FILE,
        (("first_key < keys; first_key += N", "first_key + N <= keys; first_key += N"),),
        "the number of tiles is rounded down",
        FORWARD,
    ),
    planted(
        "fa2_keys_end_at_the_first_query_of_the_tile",
        "test_out_averages_exactly_its_prefix",
        FILE,
        (("p.keys_of(min(first_query + M, p.seqlen_q) - 1);", "p.keys_of(first_query);"),),
        "one tile short: keys are bounded by the tile's first query",
        supporting(backward=False, causal="optional", cross=True),
        dict(seqlen_q=2, seqlen_k=17),
    ),
    planted(
        "fa2_key_heads_alternate",
        "test_out_matches_the_definition",
        FILE,
        (("h_k = h / p.group();", "h_k = h % p.nheads_k;"),),
        "query head h gets key head h % nheads_k instead of h / group",
        supporting(backward=False, gqa=True),
        dict(nheads=9, nheads_k=3),
    ),
    planted(
        "fa2_out_is_stored_by_the_strides_of_q",
        "test_any_layout_equals_the_contiguous_one",
        FILE,
        (
            (
                "p.out.row(b, first_query, h) + first_column, p.out.seqlen,",
                "p.q.row(b, first_query, h) + first_column, p.q.seqlen,",
            ),
        ),
        "out is written with q's strides",
        supporting(backward=False, strides=True),
        dict(seqlen_q=2, seqlen_k=2),
    ),
    planted(
        "fa2_shared_memory_is_a_row_short",
        TRACED,
        FILE,
        (("+ M * STRIDE<N>);", "+ (M - 1) * STRIDE<N>);"),),
        "a launch that asks for less shared memory than the kernel uses",
        FORWARD,
    ),
]
