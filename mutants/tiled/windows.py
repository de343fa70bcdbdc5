"""Bugs of the window: its bounds, its tiles, its mask, its backward: docs/why/bugs.md#masks."""

from flash_attest.mutants.mutant import ONE
from flash_attest.mutants.tiled.build import planted

BOTH = "return left, 0 if causal else right"
SIDES = "    left, right = (INF if side is None else side for side in window or (None, None))\n"
OF_BACKWARD = "    left, right = window_of(window, causal)  # as in forward"
LEFT = "s.masked_fill(j < i + seqlen_k - seqlen_q - left, -INF)"
HIDES_LEFT = "    if left < INF:"
FIRST_KEY = "first_key = i0 + seqlen_k - seqlen_q - left"
LAST_QUERY = "last_query = j0 + BLOCK_N - (seqlen_k - seqlen_q) + left"
FIRST_TILE = "range(max(0, first_key) // BLOCK_N * BLOCK_N,"

MUTANTS = [
    planted(
        name="window_sees_one_key_too_many_on_the_left",
        law="test_query_sees_exactly_its_window",
        edits=((BOTH, BOTH.replace("left", "left + 1")),),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2),
        story="the bound is one too far, in forward and backward alike, so sums still agree",
    ),
    planted(
        name="window_counts_the_query_itself",
        law="test_query_sees_exactly_its_window",
        edits=((BOTH, BOTH.replace("left", "left - 1")),),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2),
        story="the size of a sliding window includes the query's own key in one library, and not in another",
    ),
    planted(
        name="right_side_of_the_window_is_ignored",
        law="test_query_sees_exactly_its_window",
        edits=((BOTH, BOTH.replace("else right", "else INF")),),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2),
        story="only window_left is passed on; without a causal mask the right side is open",
    ),
    planted(
        name="window_is_ignored_with_a_causal_mask",
        law="test_query_sees_exactly_its_window",
        edits=((BOTH, BOTH.replace("left", "INF if causal else left")),),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2, causal=True),
        story="two kernels are compiled, one for causal and one for local, and causal is asked first",
    ),
    planted(
        name="causal_is_ignored_with_a_window",
        law="test_query_sees_exactly_its_window",
        edits=((BOTH, BOTH.replace("if causal", "if causal and window is None")),),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2, causal=True),
        story="a window replaces the causal mask, so that (3, None) shows the future",
    ),
    planted(
        name="window_of_0_is_taken_for_none",
        law="test_query_sees_exactly_its_window",
        edits=((SIDES, SIDES.replace("side is None", "not side")),),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2),
        story="a side is tested for truth, and 0 keys on a side become all of them",
    ),
    planted(
        name="left_side_of_the_window_aligns_top_left",
        law="test_query_sees_exactly_its_window",
        edits=(
            (LEFT, LEFT.replace(" + seqlen_k - seqlen_q", "")),
            (FIRST_KEY, FIRST_KEY.replace(" + seqlen_k - seqlen_q", "")),
            (LAST_QUERY, LAST_QUERY.replace(" - (seqlen_k - seqlen_q)", "")),
        ),
        smallest=ONE | dict(seqlen_q=3, seqlen_k=3),
        story="the right bound has the offset seqlen_k - seqlen_q, the left one does not",
    ),
    planted(
        name="first_tile_of_the_window_is_skipped_if_it_is_partial",
        law="test_query_sees_exactly_its_window",
        edits=((FIRST_TILE, "range((max(0, first_key) + BLOCK_N - 1) // BLOCK_N * BLOCK_N,"),),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=17),
        story="the first tile is rounded up: keys of a partial tile at the left edge are lost",
    ),
    planted(
        name="tiles_before_the_window_are_taken_for_whole",
        law="test_query_sees_exactly_its_window",
        edits=(
            (FIRST_TILE, "range(0,"),
            (HIDES_LEFT, "    if left < INF and j0 + BLOCK_N > i0 + seqlen_k - seqlen_q - left:"),
        ),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=18),
        story="only the tile at the edge is masked, as earlier ones are skipped; they are skipped in another version",
    ),
    planted(
        name="second_tile_of_the_edge_is_not_masked",
        law="test_query_sees_exactly_its_window",
        edits=((HIDES_LEFT, "    if left < INF and j0 <= i0 + seqlen_k - seqlen_q - left:"),),
        smallest=ONE | dict(seqlen_q=17, seqlen_k=18),
        story="the first tile alone is masked on the left; the edge of BLOCK_M queries crosses two tiles",
    ),
    planted(
        name="keys_before_the_window_keep_a_weight",
        law="test_keys_beyond_the_window_change_no_bit",
        edits=((LEFT, LEFT.replace("-INF", "-20.0")),),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2),
        story="-20 hides well enough for every tolerance, until a key before the window has a large value",
    ),
    planted(
        name="backward_ignores_the_window",
        law="test_gradients_match_the_definition",
        edits=((OF_BACKWARD, OF_BACKWARD.replace("window,", "None,")),),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2),
        story="window_size is not passed to the backward, where P is recomputed without it",
    ),
    planted(
        name="queries_behind_a_key_tile_are_counted_from_its_first_key",
        law="test_gradients_match_the_definition",
        edits=((LAST_QUERY, LAST_QUERY.replace("BLOCK_N", "1")),),
        smallest=ONE | dict(seqlen_q=17, seqlen_k=17),
        story="the backward's last query tile is bounded by what the first key of a tile is seen by",
    ),
    planted(
        name="queries_behind_a_key_tile_are_counted_without_the_offset",
        law="test_gradients_match_the_definition",
        edits=((LAST_QUERY, LAST_QUERY.replace(" - (seqlen_k - seqlen_q)", "")),),
        smallest=ONE | dict(seqlen_q=18, seqlen_k=1),
        story="the backward's last query tile is computed for seqlen_q = seqlen_k",
    ),
]
