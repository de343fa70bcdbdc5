"""Bugs of the causal mask, its alignment, rows that see no key, and the bias:
docs/why/bugs.md#masks.
"""

from flash_attest.mutants.tiled.build import planted

CAUSAL = "s.masked_fill(j > i + seqlen_k - seqlen_q + right, -INF)"  # right is 0 with a causal mask
LAST_KEY = "last_key = i0 + BLOCK_M + seqlen_k - seqlen_q + right"
FIRST_QUERY = "first_query = j0 - (seqlen_k - seqlen_q) - right"
BIAS = "bias = load_tile(load_tile(full_bias, i0, BLOCK_M).mT, j0, BLOCK_N).mT"
ADDED = "s.masked_fill(bias == 0, -INF) if full_bias.dtype == torch.bool else s + bias"
EXPAND = "bias.expand(batch, nheads, seqlen_q, seqlen_k)  # stride 0"
MAXIMUM = "            m_new = torch.maximum(m, s.amax(-1, keepdim=True))"
RECOMPUTED = "s, slope = scores(qi, kj, full_bias, shown, i0, j0, seqlen_q, seqlen_k, scale, softcap, left, right)"

# Computes exp(-inf - -inf) if a whole tile is hidden, in tiles as large as those of kernels.
MAXIMUM_IS_THE_MASK_VALUE = (
    ("BLOCK_M, BLOCK_N = 16, 16", "BLOCK_M, BLOCK_N = 128, 128"),
    ("m_safe = m_new.masked_fill(m_new == -INF, 0.0)", "m_safe = m_new"),
)

START = "        l = (m > -INF).float()"


def starting_at(least: str) -> str:
    """Return the code of a row maximum that starts at a finite number."""
    return f"        m = m.clamp(min={least})\n        l = torch.exp(sink[:, None, None] - m)"


MUTANTS = [
    planted(
        name="causal_strict_in_partial_tile",
        law="test_query_sees_exactly_its_prefix",
        edits=((CAUSAL, CAUSAL.replace("right", "right - int(0 < i0 > seqlen_q - BLOCK_M)")),),
        smallest=dict(batch=1, nheads=1, seqlen_q=17, seqlen_k=17, headdim=1),
        story="`<` where `<=` was meant, in the code for the last, partial query tile only",
    ),
    planted(
        name="causal_sees_one_key_too_many_from_query_256_on",
        law="test_long_sequences_see_their_keys",
        edits=((CAUSAL, CAUSAL.replace("right", "right + int(i0 >= 256)")),),
        smallest=dict(batch=1, nheads=1, seqlen_q=258, headdim=1),
        story="a fast path for long sequences omits its offset, in forward and backward alike, so sums still agree",
    ),
    planted(
        name="causal_sees_one_key_too_many",
        law="test_query_sees_exactly_its_prefix",
        edits=((CAUSAL, CAUSAL.replace("right", "right + 1")),),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=1),
        story="the bound is one too far; seqlen 1 and the last query have no key that shows it",
    ),
    planted(
        name="causal_skipped_in_second_query_tile",
        law="test_query_sees_exactly_its_prefix",
        edits=(("    if right < INF:", "    if right < INF and i0 != BLOCK_M:"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=18, seqlen_k=18, headdim=1),
        story="the second Q block of a thread block skips the causal mask",
    ),
    planted(
        name="causal_drops_its_last_key_from_out_alone",
        law="test_out_averages_exactly_its_prefix",
        edits=(
            (
                "as_operand(p, q) @ vj",
                "as_operand(p.tril(i0 - j0 + seqlen_k - seqlen_q - 1) if causal else p, q) @ vj",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="P is masked a second time before P V, strictly: lse is right, out is not",
    ),
    planted(
        name="row_maximum_is_taken_before_the_mask",
        law="test_hidden_keys_change_no_bit",
        edits=(
            (
                "torch.maximum(m, s.amax(-1, keepdim=True))",
                "torch.maximum(m, (scale * (qi @ kj.mT)).amax(-1, keepdim=True))",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=2),
        story="hidden keys raise the maximum: harmless in exact arithmetic, until all visible keys underflow",
    ),
    planted(
        name="log_n_scaling_is_left_on",
        law="test_prefix_alone_equals_prefix_of_the_whole",
        edits=(("s = scale * (qi @ kj.mT)", "s = (scale * max(1.0, seqlen_k / 64) ** 0.5) * (qi @ kj.mT)"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=65, seqlen_k=65, headdim=1),
        story="scores are scaled with the length of the whole sequence beyond the training length, as one model required",
    ),
    planted(
        name="causal_aligns_top_left",
        law="test_alignment_is_as_declared",
        edits=(
            (CAUSAL, "s.masked_fill(j > i + right, -INF)"),
            (LAST_KEY, "last_key = i0 + BLOCK_M + right"),
            (FIRST_QUERY, "first_query = j0 - right"),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=2, headdim=1),
        story="the alignment of FlashAttention before 2.1",
    ),
    planted(
        name="alignment_switches_with_more_queries_than_keys",
        law="test_alignment_is_as_declared",
        edits=(
            (CAUSAL, "s.masked_fill(j > i + max(seqlen_k - seqlen_q, 0) + right, -INF)"),
            (LAST_KEY, "last_key = i0 + BLOCK_M + max(seqlen_k - seqlen_q, 0) + right"),
            (FIRST_QUERY, "first_query = j0 - max(seqlen_k - seqlen_q, 0) - right"),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=1, headdim=1),
        story="top left or bottom right, by the sign of seqlen_k - seqlen_q",
    ),
    planted(
        name="bound_on_keys_forgets_the_offset",
        law="test_alignment_is_as_declared",
        edits=((LAST_KEY, "last_key = i0 + BLOCK_M + right"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=17, headdim=1),
        story="the mask is aligned bottom right, the loop over key tiles top left",
    ),
    planted(
        name="backward_ignores_causal",
        law="test_hidden_keys_change_no_bit",
        edits=((RECOMPUTED, RECOMPUTED.replace("right", "INF if causal else right")),),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=1),
        story="P is recomputed without the mask",
    ),
    planted(
        name="backward_is_always_causal",
        law="test_gradients_match_the_definition",
        edits=((RECOMPUTED, RECOMPUTED.replace("right", "0")),),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=1, causal=False),
        story="the backward ignores causal=False; a test matrix with causal=[True] only missed it for a year",
    ),
    planted(
        name="causal_mask_value_is_finite",
        law="test_rows_without_keys_give_zero",
        edits=((CAUSAL, CAUSAL.replace("-INF", "-1e4")),),
        smallest=dict(batch=1, nheads=1, seqlen_q=3, seqlen_k=3, headdim=1),
        story="-1e4 instead of -inf: a row that sees no key becomes the mean of v",
    ),
    planted(
        name="dead_row_subtracts_infinities",
        law="test_rows_without_keys_give_zero",
        edits=(("m_safe = m_new.masked_fill(m_new == -INF, 0.0)", "m_safe = m_new"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=1, headdim=1),
        story="exp(-inf - -inf): a fully masked row is NaN",
    ),
    planted(
        name="dead_row_has_lse_zero",
        law="test_rows_without_keys_give_zero",
        edits=(("lse_i = m + torch.log(l)", "lse_i = torch.where(l == 0, 0.0, m + torch.log(l))"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=1, headdim=1),
        story="the guard against log(0) gives 0, where a merge of splits needs -inf",
    ),
    planted(
        name="dead_row_turns_all_key_gradients_into_nan",
        law="test_rows_without_keys_leave_the_others_alone",
        edits=(("lse = lse.masked_fill(dead, INF).unsqueeze(-1)", "lse = lse.unsqueeze(-1)"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=1, headdim=1),
        story="exp(S - lse) with lse = -inf: one dead row makes dk and dv NaN for all keys",
    ),
    planted(
        name="tile_is_skipped_by_its_first_query",
        law="test_infinite_bias_hides_exactly_its_keys",
        edits=(
            (
                "            m_new = torch.maximum(",
                "            if bool((s[:, :, 0] == -INF).all()):\n"
                "                continue\n"
                "            m_new = torch.maximum(",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=3, seqlen_k=3, headdim=1),
        story="block skipping checks only the tile's first query, as if later queries saw no more keys",
    ),
    planted(
        name="maximum_becomes_the_mask_value_in_a_hidden_tile",
        law="test_infinite_bias_hides_exactly_its_keys",
        edits=MAXIMUM_IS_THE_MASK_VALUE,
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=258, headdim=1),
        story="padding on the left hides the first tile whole: exp(-inf - -inf), though every row sees a key later",
        declares=dict(empty_rows="undefined"),
    ),
    planted(
        name="hidden_tile_turns_out_into_nan",
        law="test_out_averages_the_keys_that_a_bias_leaves",
        edits=MAXIMUM_IS_THE_MASK_VALUE,
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=140),
        story="the same, seen in out alone; the tile is not declared, and lengths still reach two tiles of 128",
        declares=dict(empty_rows="undefined", tile=None),
    ),
    planted(
        name="infinite_bias_is_made_finite",
        law="test_keys_hidden_by_bias_change_no_bit",
        edits=((BIAS, BIAS + ".clamp(min=-20.0)"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=1),
        story="a mask of -20 leaves a weight of 2e-9, below every tolerance until a hidden key has a large score",
    ),
    planted(
        name="bias_saturates",
        law="test_constant_in_bias_changes_only_lse",
        edits=((BIAS, BIAS + ".clamp(max=4.0)"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="the bias is clamped at a value that random numbers never reach",
    ),
    planted(
        name="bias_is_scaled",
        law="test_biased_attention_matches_the_definition",
        edits=((ADDED, ADDED.replace("s + bias", "s + scale * bias")),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=2),
        story="the bias is added before softmax_scale instead of after it",
    ),
    planted(
        name="bias_is_rounded_to_bfloat16",
        law="test_biased_attention_matches_the_definition",
        edits=((BIAS, BIAS + ".bfloat16()"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="a float32 bias is cast when it is loaded",
    ),
    planted(
        name="bias_row_is_that_of_the_first_query",
        law="test_alibi_matches_the_definition",
        edits=((BIAS, BIAS.replace("(full_bias, i0, BLOCK_M).mT", "(full_bias, i0, BLOCK_M)[:, :, :1].mT")),),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=1),
        story="each tile uses the bias row of its first query for all of them",
    ),
    planted(
        name="bias_of_head_0_serves_all_heads",
        law="test_bias_picks_its_key",
        edits=((EXPAND, "bias[:, :1].expand(batch, nheads, seqlen_q, seqlen_k)  # stride 0"),),
        smallest=dict(batch=1, nheads=3, seqlen_q=2, seqlen_k=2, headdim=1),
        story="the bias's head stride is missing",
    ),
    planted(
        name="bias_steps_by_heads_from_batch_to_batch",
        law="test_broadcast_bias_equals_its_copy",
        edits=(
            (
                EXPAND,
                "(bias if len(bias) > 1 else torch.stack([bias[0].roll(-b, 0) for b in range(batch)]))"
                ".expand(batch, nheads, seqlen_q, seqlen_k)  # stride 0",
            ),
        ),
        smallest=dict(batch=3, nheads=3, seqlen_q=1, seqlen_k=1, headdim=1),
        story="a bias of batch size 1 is stepped through with the stride of its heads",
    ),
    planted(
        name="backward_ignores_bias",
        law="test_biased_attention_matches_the_definition",
        edits=((RECOMPUTED, RECOMPUTED.replace("full_bias", "None")),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="P is recomputed without the bias",
    ),
    planted(
        name="masks_below_minus_1e8_are_taken_for_infinite",
        law="test_finite_masks_hide_as_infinity_does",
        edits=((ADDED, ADDED + "\n        s = s.masked_fill(s < -1e8, -INF)"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="-1e9 means hidden, so a row that is all -1e9 is taken for empty: out is 0, not the mean of v",
    ),
    planted(
        name="row_maximum_starts_at_a_hundred_million_below",
        law="test_finite_masks_hide_as_infinity_does",
        edits=(
            (
                START,
                starting_at("-1e8"),
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="a finite start in place of -inf avoids inf - inf, and hides what lies below it",
    ),
    planted(
        name="loop_over_keys_ends_at_the_first_hidden_tile",
        law="test_infinite_bias_hides_exactly_its_keys",
        edits=(
            (
                MAXIMUM,
                "            if bool((m > -INF).any()) and bool((s == -INF).all()):\n                break\n" + MAXIMUM,
            ),
        ),
        smallest=dict(batch=1, seqlen_q=19, seqlen_k=35, headdim=1),
        story="right padding hides all that follows; a mask of first keys and a window does not",
    ),
    planted(
        name="diagonal_on_the_edge_of_a_tile_ends_one_tile_early",
        law="test_query_sees_exactly_its_prefix",
        edits=((LAST_KEY, LAST_KEY + " - BLOCK_N * (seqlen_k > seqlen_q and (seqlen_k - seqlen_q) % 64 == 0)"),),
        smallest=dict(batch=1, nheads=1, headdim=1),
        story="the number of tiles is rounded up by hand; right unless keys and queries lie a whole tile apart",
    ),
]
