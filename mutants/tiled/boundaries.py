"""Bugs at the edges: tails, the last tile, columns beyond a round number, no keys, no queries:
docs/why/bugs.md#boundaries.
"""

import torch

from flash_attest.impls import Supports
from flash_attest.mutants.tiled.build import planted

OUT = "    out = q.new_zeros(batch, seqlen_q, nheads, v.shape[3])\n"
LAST_KEY = "min(seqlen_k, last_key), BLOCK_N)"
FORWARD = dict(backward=None, supports=Supports(dtypes={torch.float32}, headdims=range(1, 131), cross=True))

MUTANTS = [
    planted(
        name="padding_keys_count_as_score_zero",
        law="test_padding_keys_count_nothing",
        edits=(("    if j0 + BLOCK_N > seqlen_k:  # tail mask", "    if False:  # tail mask"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="the tail of the last key tile is loaded as zeros and never masked",
    ),
    planted(
        name="tail_tile_is_dropped",
        law="test_padding_keys_count_nothing",
        edits=(
            (
                LAST_KEY,
                LAST_KEY.replace(
                    "seqlen_k", "seqlen_k if right < INF else max(BLOCK_N, seqlen_k // BLOCK_N * BLOCK_N)"
                ),
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=17, seqlen_k=17, headdim=1),
        story="the number of key tiles is rounded down, but to at least one",
    ),
    planted(
        name="evenness_of_queries_is_taken_for_that_of_keys",
        law="test_padding_keys_count_nothing",
        edits=(
            (
                "    if j0 + BLOCK_N > seqlen_k:  # tail mask",
                "    if j0 + BLOCK_N > seqlen_k and seqlen_q % BLOCK_M:  # tail mask",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=16, seqlen_k=16, headdim=1),
        story="the unmasked fast path is chosen by is_even_M and runs past the last key",
    ),
    planted(
        name="last_key_is_lost_when_the_tile_divides_seqlen",
        law="test_padding_keys_count_nothing",
        edits=(
            ("    if j0 + BLOCK_N > seqlen_k:  # tail mask", "    if j0 + BLOCK_N >= seqlen_k:  # tail mask"),
            (
                "s.masked_fill(j >= seqlen_k, -INF)",
                "s.masked_fill(j >= j0 + (seqlen_k % BLOCK_N or BLOCK_N - 1), -INF)",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=16, seqlen_k=16, headdim=1),
        story="seqlen % BLOCK_N = 0 is treated as a tail: wrong exactly at multiples of the tile",
    ),
    planted(
        name="last_query_tile_is_dropped_in_backward",
        law="test_ragged_sizes_match_the_definition",
        edits=(
            (
                "min(seqlen_q, last_query), BLOCK_M)",
                "min(max(BLOCK_M, seqlen_q // BLOCK_M * BLOCK_M), last_query), BLOCK_M)",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=17, seqlen_k=17, headdim=1),
        story="the backward's number of query tiles is rounded down: forward right, gradients of the tail missing",
    ),
    planted(
        name="only_64_columns_enter_the_score",
        law="test_every_column_of_headdim_matters",
        edits=(("s = scale * (qi @ kj.mT)", "s = scale * (qi[..., :64] @ kj[..., :64].mT)"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=16, seqlen_k=16, headdim=130),
        story="the first 64 columns are used for every head dim",
    ),
    planted(
        name="columns_after_the_last_multiple_of_32_are_not_written",
        law="test_winning_key_is_copied",
        edits=(
            (
                "store_tile(out.transpose(1, 2), i0, oi)",
                "columns = max(32, headdim // 32 * 32)\n"
                "        store_tile(out.transpose(1, 2)[..., :columns], i0, oi[..., :columns])",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=65),
        story="accumulator columns never written for a head dim that is not a multiple of 32 (72, 104)",
    ),
    planted(
        name="launch_fails_unnoticed_for_wide_heads",
        law="test_out_matches_the_definition",
        edits=(
            (
                "    lse = q.new_zeros(batch, nheads, seqlen_q, dtype=torch.float32)\n",
                "    lse = q.new_zeros(batch, nheads, seqlen_q, dtype=torch.float32)\n"
                "    if headdim > 96:\n"
                "        return out, lse\n",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=97),
        story="too much shared memory is requested; the launch error is not checked, and zeros are returned",
    ),
    planted(
        name="keys_are_taken_for_heads_when_there_are_as_many",
        law="test_ragged_sizes_match_the_definition",
        edits=(
            (
                OUT,
                "    k = k.transpose(1, 2) if seqlen_k == k.shape[2] else k\n" + OUT,
            ),
        ),
        smallest=dict(batch=3, nheads=6, seqlen_q=3, seqlen_k=3, headdim=1),
        story="k is transposed twice, and with nheads = seqlen no shape shows it",
    ),
    planted(
        name="value_tile_is_the_one_before",
        law="test_winning_key_is_copied",
        edits=(
            (
                "            vj = load_tile(v.transpose(1, 2), j0, BLOCK_N)",
                "            vj = load_tile(v.transpose(1, 2), max(0, j0 - BLOCK_N), BLOCK_N)",
            ),
        ),
        smallest=dict(batch=3, nheads=3, seqlen_q=24, seqlen_k=24, headdim=3),
        story="the pipeline advances k's pointer but not v's",
    ),
    planted(
        name="offset_of_a_tile_overflows",
        law="test_winning_key_is_copied",
        edits=(
            (
                "            vj = load_tile(v.transpose(1, 2), j0, BLOCK_N)",
                "            vj = load_tile(v.transpose(1, 2), j0 % 64, BLOCK_N)",
            ),
        ),
        smallest=dict(batch=3, nheads=3, seqlen_q=92, seqlen_k=92),
        story="an offset in too few bits, here 6 where it was 16 or 32: only long sequences wrap around",
    ),
    planted(
        name="ring_of_tiles_wraps_around",
        law="test_every_column_of_headdim_matters",
        declares=FORWARD,
        edits=(
            (
                "            kj = load_tile(k.transpose(1, 2), j0, BLOCK_N)",
                "            kj = load_tile(k.transpose(1, 2), j0 % 400, BLOCK_N)",
            ),
            (
                "            vj = load_tile(v.transpose(1, 2), j0, BLOCK_N)",
                "            vj = load_tile(v.transpose(1, 2), j0 % 400, BLOCK_N)",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=600),
        story="late tiles of k and v are earlier ones again: every sum of gradients is as it should be",
    ),
    planted(
        name="last_split_of_a_single_query_is_dropped",
        law="test_single_query_matches_the_definition",
        edits=(
            (
                LAST_KEY,
                "min(64 * max(1, seqlen_k // 64) if seqlen_q == 1 else seqlen_k, last_key), BLOCK_N)",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_k=65, headdim=1),
        story="split-K decoding: the number of splits of 64 keys is rounded down",
    ),
    planted(
        name="queries_before_a_key_tile_are_counted_without_the_offset",
        law="test_single_query_matches_the_definition",
        edits=(("first_query = j0 - (seqlen_k - seqlen_q) - right", "first_query = j0 - right"),),
        smallest=dict(batch=1, nheads=1, seqlen_k=17, headdim=1, causal=True),
        story="the backward's first query tile is computed for seqlen_q = seqlen_k: late keys get no gradient",
    ),
    planted(
        name="no_queries_crash_the_backward",
        law="test_no_queries_give_no_gradient",
        edits=(
            (
                "    for j0 in range(0, seqlen_k, BLOCK_N):",
                "    if seqlen_q == 0:\n"
                '        raise RuntimeError("CUDA error: invalid configuration argument")\n'
                "    for j0 in range(0, seqlen_k, BLOCK_N):",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_k=1, headdim=1),
        story="a grid of 0 blocks is launched",
    ),
    planted(
        name="no_keys_give_lse_zero",
        law="test_no_keys_give_zero",
        edits=(
            (
                "    lse = q.new_zeros(batch, nheads, seqlen_q, dtype=torch.float32)\n",
                "    lse = q.new_zeros(batch, nheads, seqlen_q, dtype=torch.float32)\n"
                "    if seqlen_k == 0:\n"
                "        return out, lse\n",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, headdim=1),
        story="the early return for no keys gives lse 0, but the log of an empty sum is -inf",
    ),
    planted(
        name="columns_of_bias_wrap_at_512",
        law="test_bias_picks_its_key",
        edits=(
            (
                "load_tile(full_bias, i0, BLOCK_M).mT, j0, BLOCK_N)",
                "load_tile(full_bias, i0, BLOCK_M).mT, j0 % 512, BLOCK_N)",
            ),
        ),
        smallest=dict(batch=1, nheads=1),
        story="the column of the bias is taken modulo the longest length of its first user",
    ),
    planted(
        name="parts_of_512_keys_are_merged_without_weights",
        law="test_single_query_matches_the_definition",
        edits=(
            (
                "alpha = torch.exp(m - m_safe)",
                "alpha = torch.exp(m - m_safe) if seqlen_q > 1 or j0 % 512 else torch.ones_like(m)",
            ),
        ),
        smallest=dict(batch=1, seqlen_q=1, headdim=1),
        story="decoding splits the keys from 512 on, and adds the parts without the exp of their maxima",
    ),
    planted(
        name="mask_is_compared_in_bfloat16",
        law="test_out_averages_exactly_its_prefix",
        declares=FORWARD | dict(supports=Supports(dtypes={torch.float32}, headdims=range(1, 131), causal="optional")),
        edits=(
            ("j > i + seqlen_k - seqlen_q + right, -INF)", "j > (i + seqlen_k - seqlen_q + right).bfloat16(), -INF)"),
        ),
        smallest=dict(batch=1, nheads=1),
        story="positions are converted to bfloat16, which holds all integers up to 256 only",
    ),
    planted(
        name="a_group_of_more_than_four_heads_reads_keys_as_one_of_four",
        law="test_gradients_match_the_definition",
        edits=(
            (
                "    return torch.arange(q.shape[2], device=q.device) // max(group, 1)",
                "    group = 4 if 4 < group < 8 else max(group, 1)\n"
                "    return (torch.arange(q.shape[2], device=q.device) // group).clamp(max=k.shape[2] - 1)",
            ),
        ),
        smallest=dict(batch=1, seqlen_q=1, headdim=1),
        story="tables exist for groups of 1, 2, 4 and 8: 5 and 7, as in Qwen, use the table of 4",
    ),
    planted(
        name="batches_from_the_fourth_on_read_its_keys",
        law="test_out_matches_the_definition",
        edits=(
            (
                "    kv_head = key_head_of(q, k)\n",
                "    kv_head = key_head_of(q, k)\n    k = k[torch.arange(batch).clamp(max=3)]\n",
            ),
        ),
        smallest=dict(batch=5, nheads=1, seqlen_q=1, seqlen_k=2, headdim=1),
        story="a table of offsets has four entries, as the tests had at most three batches",
    ),
]
