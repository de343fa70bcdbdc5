"""Bugs of the window in the Triton kernels: tiles, masks, queries: docs/why/bugs.md#masks."""

from flash_attest.mutants.triton.build import planted, supporting

FULL = "full = tl.minimum(tl.cdiv(tl.maximum(last_query + begin, 0), BLOCK_N) * BLOCK_N, clear)"
START = "start = tl.maximum(i0 + begin, 0) // BLOCK_N * BLOCK_N"
AT = "j0 = tl.where(at < clear, at - (clear - full), at)"
LAST_QUERY = "last = tl.maximum(tl.minimum(seqlen_q, j0 + BLOCK_N - begin), 0)"
FULL_QUERIES = "full = tl.maximum(tl.minimum(j0 - begin + 1, last), 0) // BLOCK_M * BLOCK_M"
SCORES_OF_DQ = """qk, bias_ptr, i, j, scale, softcap, bias_row, seqlen_q, seqlen_k, begin, diagonal,
            BIAS, CAP, WINDOW"""
FORWARD = supporting(backward=False, window={"left"}, cross=True)
BACKWARD = supporting(window={"left"}, cross=True)

MUTANTS = [
    planted(
        name="triton_tile_of_the_left_edge_is_not_masked",
        law="test_query_sees_exactly_its_window",
        source="tiles.py",
        declares=FORWARD,
        edits=((FULL, FULL.replace("tl.cdiv(tl.maximum(last_query + begin, 0), BLOCK_N)", "(start // BLOCK_N)")),),
        smallest=dict(batch=1, nheads=1, headdim=1),
        story="the loop without a mask starts with the first tile of the window, whose first keys lie before it",
    ),
    planted(
        name="triton_tile_of_the_left_edge_is_that_of_the_first_query",
        law="test_query_sees_exactly_its_window",
        source="tiles.py",
        declares=FORWARD,
        edits=((FULL, FULL.replace("last_query", "i0")),),
        smallest=dict(batch=1, nheads=1, headdim=1),
        story="the loop without a mask starts where the first query of the tile sees every key; later ones do not",
    ),
    planted(
        name="triton_window_starts_at_the_next_key_tile",
        law="test_query_sees_exactly_its_window",
        source="tiles.py",
        declares=FORWARD,
        edits=((START, "start = tl.cdiv(tl.maximum(i0 + begin, 0), BLOCK_N) * BLOCK_N"),),
        smallest=dict(batch=1, nheads=1, headdim=1),
        story="the first key tile is rounded up, so the keys of the left edge are lost",
    ),
    planted(
        name="triton_last_edge_of_the_window_is_read_one_tile_early",
        law="test_query_sees_exactly_its_window",
        source="forward.py",
        declares=FORWARD,
        edits=((AT, AT.replace("<", "<=")),),
        smallest=dict(batch=1, nheads=1, headdim=1),
        story="one loop has both edges: a tile between them counts twice, and the one of the last keys never",
    ),
    planted(
        name="triton_dq_forgets_the_window",
        law="test_gradients_match_the_definition",
        source="backward.py",
        declares=BACKWARD,
        edits=((SCORES_OF_DQ, SCORES_OF_DQ.replace("WINDOW", "False")),),
        smallest=dict(batch=1, nheads=1, headdim=1),
        story="the tiles are those of the window, but P of its left edge is recomputed without the mask",
    ),
    planted(
        name="triton_dk_dv_sum_over_queries_behind_the_window",
        law="test_gradients_match_the_definition",
        source="backward.py",
        declares=BACKWARD,
        edits=((FULL_QUERIES, "full = last // BLOCK_M * BLOCK_M"),),
        smallest=dict(batch=1, nheads=1, headdim=1),
        story="the loop without a mask ends with the last query that sees a key, not with the last that sees all",
    ),
    planted(
        name="triton_queries_of_a_key_tile_end_at_those_of_its_first_key",
        law="test_gradients_match_the_definition",
        source="backward.py",
        declares=BACKWARD,
        edits=((LAST_QUERY, LAST_QUERY.replace("j0 + BLOCK_N", "j0 + 1")),),
        smallest=dict(batch=1, nheads=1, headdim=1),
        story="the last query that sees the first key of a tile bounds the loop: later keys lack a tile of queries",
    ),
]
