"""Bugs of packed and padded sequences: docs/why/bugs.md#forms."""

from functools import partial

from flash_attest.mutants.mutant import ONE
from flash_attest.mutants.tiled.build import planted

varlen = partial(planted, impl="python_tiled_varlen")
padded = partial(planted, impl="python_tiled_padded")

SEQUENCES = "    for n in range(len(queries.starts)):\n"
FORWARD = "q_n, k_n, v_n = sequence(q, queries, n), sequence(k, keys, n), sequence(v, keys, n)"
OUT_N = "out_n, lse_n = sequence(out, queries, n), sequence(lse.T.unsqueeze(2), queries, n)"
TILES = "            tiles = tiles_of_keys(i0, seqlen_q, seqlen_k, scoring)\n"
ATTEND = "oi, lse_i = attend(q, qi, i0, seqlen_q, seqlen_k, scoring, sinks, tiles"
BEHIND = "            if i0 >= seqlen_q:\n"
CALL = "return forward_of(q, k, v, queries, keys,"
OUT = "    out = q.new_zeros(total_q, nheads, v.shape[2])\n"
LSE = "    lse = q.new_zeros(nheads, total_q, dtype=torch.float32)\n"
DKJ = "            dkj = kj.new_zeros(1, nheads, BLOCK_N, headdim)\n"
DSINK = "    dsink = None if sinks is None else torch.zeros_like(sinks)\n"
ROWS_OF_BACKWARD = "q_n, dout_n, out_n = sequence(q, queries, n), sequence(dout, queries, n), sequence(out, queries, n)"
LSE_OF_BACKWARD = "        lse_n = sequence(lse.T.unsqueeze(2), queries, n)\n"
PADDED_CALL = "*map(packed, (q, k, v)), queries, keys,"
PADDED_ROWS = "Rows([n * most for n in range(batch)], seqused.tolist())"


def to_the_end(x: str, rows: str) -> str:
    """Return the view of x from the first row of sequence n to the end of the buffer."""
    return f"{x}[{rows}.starts[n] :].transpose(0, 1).unsqueeze(0)"


MUTANTS = [
    varlen(
        name="packed_output_is_allocated_once",
        law="test_outputs_stay_as_they_were_returned",
        edits=(
            ("def forward_of(", "KEPT = {}\n\n\ndef forward_of("),
            (OUT, "    out = KEPT.setdefault((q.shape, q.dtype, v.shape), q.new_zeros(total_q, nheads, v.shape[2]))\n"),
        ),
        smallest=ONE,
        story="a serving loop hands the same buffer to every call of the same number of rows",
    ),
    varlen(
        name="packed_mask_aligns_by_the_longest_sequence",
        law="test_query_sees_exactly_its_prefix",
        edits=(
            (
                TILES,
                "            shift = max(keys.lengths) - max(queries.lengths) - (seqlen_k - seqlen_q)\n"
                "            shifted = scoring._replace(left=scoring.left - shift, right=scoring.right + shift)\n"
                + TILES.replace("scoring)", "shifted)"),
            ),
            (ATTEND, ATTEND.replace("scoring", "shifted")),
        ),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2),
        story="the diagonal follows from max_seqlen_q and max_seqlen_k: right alone, wrong among longer sequences",
    ),
    varlen(
        name="rows_behind_a_packed_sequence_are_multiplied_by_zero",
        law="test_memory_around_inputs_is_not_read",
        edits=((FORWARD, FORWARD.replace("sequence(v, keys, n)", to_the_end("v", "keys"))),),
        smallest=ONE,
        story="the last tile loads whole rows of v: P is 0 there, and 0 * NaN is NaN",
    ),
    varlen(
        name="keys_of_the_next_sequence_fill_the_last_tile",
        law="test_out_matches_the_definition",
        edits=(
            (
                FORWARD,
                f"q_n, k_n, v_n = sequence(q, queries, n), {to_the_end('k', 'keys')}, {to_the_end('v', 'keys')}\n"
                "        whole = min(-(-seqlen_k // BLOCK_N) * BLOCK_N, k_n.shape[2])",
            ),
            (ATTEND, ATTEND.replace("seqlen_k", "whole")),
        ),
        smallest=ONE | dict(seqlen_q=2),
        story="keys are masked behind the last tile, not behind the sequence",
    ),
    varlen(
        name="an_empty_sequence_overwrites_the_next_row",
        law="test_out_matches_the_definition",
        edits=(
            (SEQUENCES, "    for n in reversed(range(len(queries.starts))):\n"),
            (BEHIND, "            if i0 >= max(seqlen_q, 1):\n"),
            (
                OUT_N,
                "rows = Rows(queries.starts, [max(length, 1) for length in queries.lengths])\n"
                f"        {OUT_N.replace('queries', 'rows')}",
            ),
        ),
        smallest=ONE,
        story="a sequence without queries still stores a row, which is the next sequence's; programs run in any order",
    ),
    varlen(
        name="rows_up_to_max_seqlen_are_written",
        law="test_rows_of_nobody_are_zero",
        edits=(
            (BEHIND, "            if i0 >= max_seqlen_q:\n"),
            (
                OUT_N,
                "most = Rows(queries.starts, [max_seqlen_q] * len(queries.starts))\n"
                f"        {OUT_N.replace('queries', 'most')}",
            ),
        ),
        smallest=ONE,
        story="stores are masked by max_seqlen_q, so a shorter sequence writes into what lies behind it",
    ),
    varlen(
        name="keys_start_where_the_queries_of_the_sequence_do",
        law="test_out_matches_the_definition",
        edits=((CALL, CALL.replace("keys", "Rows(queries.starts, keys.lengths)")),),
        smallest=ONE | dict(seqlen_k=2),
        story="cu_seqlens_q is used for k and v too: right where all have as many keys as queries",
    ),
    varlen(
        name="packed_tiles_are_counted_by_the_first_sequence",
        law="test_out_matches_the_definition",
        edits=(("range(0, max_seqlen_q, BLOCK_M)", "range(0, queries.lengths[0], BLOCK_M)"),),
        smallest=ONE,
        story="the grid is sized by the first sequence instead of the longest",
    ),
    varlen(
        name="lse_of_a_head_begins_behind_the_last_sequence",
        law="test_lse_matches_the_definition",
        edits=(
            (LSE, f"{LSE}    used = queries.starts[-1] + queries.lengths[-1]\n"),
            (
                OUT_N,
                OUT_N.replace("lse.T", "lse.view(-1)[: nheads * used].view(nheads, used).T"),
            ),
        ),
        smallest=ONE | dict(nheads=2),
        story="lse has total_q columns in each head, and the kernel counts cu_seqlens_q[-1] of them",
    ),
    varlen(
        name="dk_of_one_sequence_is_added_to_the_next",
        law="test_gradients_match_the_definition",
        edits=(
            (DSINK, f"{DSINK}    dkj = k.new_zeros(1, nheads, BLOCK_N, headdim, dtype=torch.float32)\n"),
            (DKJ, DKJ.replace("\n", " if n == 0 or j0 else dkj\n")),
        ),
        smallest=ONE | dict(batch=2, seqlen_q=2, seqlen_k=2),
        story="a persistent program clears its accumulator once, and not for each sequence that it takes",
    ),
    varlen(
        name="dv_sums_over_queries_of_the_next_sequence",
        law="test_gradients_match_the_definition",
        edits=(
            (
                ROWS_OF_BACKWARD,
                f"q_n, dout_n, out_n = ({to_the_end('x', 'queries')} for x in (q, dout, out))",
            ),
            (LSE_OF_BACKWARD, f"        lse_n = {to_the_end('lse.T.unsqueeze(2)', 'queries')}\n"),
            ("- sequence(dlse.T.unsqueeze(2), queries, n)", f"- {to_the_end('dlse.T.unsqueeze(2)', 'queries')}"),
        ),
        smallest=ONE | dict(batch=2),
        story="the last tile of queries is loaded whole in the backward, and its rows have a weight",
    ),
    varlen(
        name="dsink_is_that_of_the_last_sequence",
        law="test_gradients_match_the_definition",
        edits=(("            dsink -= (", "            dsink = -("),),
        smallest=ONE | dict(batch=2),
        story="each sequence stores its part of dsink, and none adds to it",
    ),
    padded(
        name="padding_of_a_shorter_sequence_counts_as_keys",
        law="test_out_matches_the_definition",
        edits=((PADDED_ROWS, "Rows([n * most for n in range(batch)], [most] * batch)"),),
        smallest=ONE,
        story="seqused is not passed on, so every sequence is as long as its row of the batch",
    ),
    padded(
        name="keys_in_use_are_as_many_as_queries",
        law="test_out_matches_the_definition",
        edits=((PADDED_CALL, PADDED_CALL.replace("keys", "Rows(keys.starts, queries.lengths)")),),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2),
        story="seqused_q is passed twice; right for self-attention alone",
    ),
    padded(
        name="padded_rows_start_behind_the_longest_sequence",
        law="test_out_matches_the_definition",
        edits=((PADDED_ROWS, PADDED_ROWS.replace("n * most", "n * max(seqused.tolist())")),),
        smallest=ONE | dict(batch=2),
        story="the stride of a sequence is taken from max(seqused), and the buffer has more rows",
    ),
]
