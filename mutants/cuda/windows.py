"""Bugs of windows and softcaps in CUDA: the tiles at both edges, the backward's bounds, tanh."""

from flash_attest.mutants.cuda.build import planted, supporting
from flash_attest.mutants.mutant import TRACED
from flash_attest.mutants.races.cuda import COPIED_KEYS, COPY_TILE, KEYS, LOADED, LOOP, WAIT

SCORES, FORWARD, BACKWARD = "scores.cuh", "fa2_forward.cuh", "backward.cuh"
SIDES = {"left", "right", "both"}
WINDOWS = supporting(backward=False, window=SIDES, cross=True)
GRADIENTS = supporting(window=SIDES, cross=True)
SLOPES = "P[r][c] *= dS[column(c) * STRIDE<N> + row(r)];"
BEHIND = "__syncthreads();  // K, V and P are still being read: do not write the next ones yet"

MUTANTS = [
    planted(
        "fa2_first_tile_of_the_window_is_skipped",
        "test_query_sees_exactly_its_window",
        FORWARD,
        (("p.first_key_of(first_query) / N * N;", "round_up(p.first_key_of(first_query), N);"),),
        "the first key is rounded up to a tile instead of down",
        WINDOWS,
        dict(seqlen_q=2, seqlen_k=17),
    ),
    planted(
        "fa2_keys_begin_at_the_last_query_of_the_tile",
        "test_query_sees_exactly_its_window",
        FORWARD,
        (("p.first_key_of(first_query) / N * N;", "p.first_key_of(first_query + M - 1) / N * N;"),),
        "the tile's last query has the last first key, so tiles that only earlier queries see are skipped",
        WINDOWS,
        dict(seqlen_q=17, seqlen_k=17),
    ),
    planted(
        "both_left_edge_tile_is_taken_for_clear",
        "test_keys_beyond_the_window_change_no_bit",
        SCORES,
        (("first_key >= p.first_key_of(first_query + QUERIES - 1) &&", "first_key >= p.first_key_of(first_query) &&"),),
        "a tile is left unmasked if its first query sees all keys: no mask at the left edge",
        WINDOWS,
        dict(seqlen_q=17, seqlen_k=17),
    ),
    planted(
        "both_window_is_left_to_the_causal_mask",
        "test_query_sees_exactly_its_window",
        "algorithm.py",
        (
            (
                "causal, window, self.alignment), out=out)",
                "causal, window if causal else None, self.alignment), out=out)",
            ),
        ),
        "a window without causal is accepted and does nothing",
        supporting(backward=False, window=SIDES, causal="optional"),
        dict(seqlen_q=2, seqlen_k=2),
    ),
    planted(
        "backward_masks_only_the_right_side",
        "test_gradients_match_the_definition",
        SCORES,
        (
            (
                "j >= p.first_key_of(i) && j < p.keys_of(i)",
                "(ROWS_ARE_KEYS || j >= p.first_key_of(i)) && j < p.keys_of(i)",
            ),
        ),
        "the transposed scores of the backward have the causal mask's side alone",
        GRADIENTS,
        dict(seqlen_q=2, seqlen_k=2),
    ),
    planted(
        "backward_queries_end_with_those_of_the_first_key",
        "test_gradients_match_the_definition",
        BACKWARD,
        (("const int queries = p.queries_of_tile(j0, N),", "const int queries = p.queries_of(j0),"),),
        "the loop over queries ends with those that see the tile's first key; its last key is seen by later ones",
        GRADIENTS,
        dict(seqlen_q=17, seqlen_k=17),
    ),
    planted(
        "backward_dq_has_a_sum_from_the_first_key_tile_on",
        "test_what_memory_held_before_does_not_matter",
        BACKWARD,
        (("if (i0 < summed) fetch_rows", "if (j0 != split * N) fetch_rows"),),
        "right under a causal mask, where every query sees key 0; with a window a query's first tile is a later one",
        GRADIENTS,
        dict(seqlen_q=33, seqlen_k=33),
    ),
    planted(
        "backward_sums_are_those_of_the_first_blocks",
        "test_what_memory_held_before_does_not_matter",
        BACKWARD,
        (("first = p.first_key_of(i0) / n;", "first = 0;"),),
        "blocks whose key tiles all lie before the window have no sum for its queries",
        GRADIENTS,
        dict(seqlen_q=130, seqlen_k=130),
    ),
    planted(
        "fa2_barrier_is_left_out_behind_the_left_edge",
        TRACED,
        FORWARD,
        ((BEHIND, f"if (first_key >= p.first_key_of(first_query + M - 1)) {BEHIND}"),),
        "a branch for tiles that the window cuts, and the barrier is in the other branch",
        WINDOWS,
        dict(seqlen_q=17, seqlen_k=65),
    ),
    planted(
        "fa2_skipped_tile_is_still_on_its_way",
        TRACED,
        FORWARD,
        (
            COPY_TILE,
            (LOOP, "    for (int first_key = 0; first_key < keys; first_key += N) {\n"),
            (KEYS, f"{COPIED_KEYS}\n            if (first_key + N <= p.first_key_of(first_query)) continue;"),
            (LOADED, WAIT + LOADED),
        ),
        "a tile outside the window is skipped after its copy was begun, so the next copy writes to the same place",
        WINDOWS,
        dict(seqlen_q=2, seqlen_k=33),
    ),
    planted(
        "backward_slope_of_the_cap_is_missing",
        "test_gradients_match_the_definition",
        BACKWARD,
        ((SLOPES, ";"),),
        "the forward caps the scores, the backward multiplies no gradient by 1 - tanh^2",
        supporting(softcap=True),
        dict(seqlen_q=2, seqlen_k=2),
    ),
    planted(
        "both_cap_comes_before_the_scale",
        "test_capped_scores_are_the_cap",
        SCORES,
        (
            ("tanhf(S[r][c] / p.softcap);", "tanhf(S[r][c] / p.softmax_scale / p.softcap);"),
            ("S[r][c] = p.softcap * t;", "S[r][c] = p.softmax_scale * p.softcap * t;"),
        ),
        "scale cap(q k): invisible if the scale is 1",
        supporting(backward=False, softcap=True),
        dict(headdim=2),
    ),
    planted(
        "both_bias_is_capped_too",
        "test_biased_attention_matches_the_definition",
        SCORES,
        (
            ("    if (p.softcap) {", "    if (p.softcap && !bias) {"),
            (
                "seen ? S[r][c] + bias_at(p, bias, b, h, i, j) : -INFINITY;",
                "seen ? S[r][c] + bias_at(p, bias, b, h, i, j) : -INFINITY;\n"
                "            if (p.softcap && bias && seen) S[r][c] = p.softcap * tanhf(S[r][c] / p.softcap);",
            ),
        ),
        "the bias is added before the cap: a hidden key then has a score of -softcap",
        supporting(backward=False, softcap=True, bias={"vector"}),
        dict(seqlen_q=2, seqlen_k=2),
    ),
]
