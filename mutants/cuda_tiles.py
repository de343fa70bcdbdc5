"""Bugs in what all kernels of impls/cuda share: tiles, their tails, masks, sums over lanes, strides, the host's blocks.

They run on the CPU, plain or traced, with tiles of 16 queries by 16 keys (ONE_INSTANCE of fa1.cu and fa2.cu).
"""

from collections.abc import Sequence
from typing import Any

import torch

from impls import Supports
from mutants.mutant import Mutant

TRACED, CONTRACT = "test_no_race_is_traced", "test_contract_is_kept"
ONE = dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1)


def promising(*dtypes: torch.dtype, headdims: Sequence[int] = range(1, 33), backward: bool = True, **features: Any):
    """Fields of an Implementation that promises these features alone, so that every drawn case is about them."""
    supports = Supports(dtypes=dtypes or {torch.float32}, headdims=headdims, **features)
    return dict(supports=supports, tile=(16, 16), **({} if backward else {"backward": None}))


def planted(
    name: str, law: str, file: str, edits: tuple, story: str, promises: dict[str, Any],
    smallest: dict[str, Any] | None = None, impl: str = "cuda_fa2", device: str = "cpu",
) -> Mutant:  # fmt: skip
    """A mutant of a file of impls/cuda. smallest: beside ONE, what the shrunk case needs more of."""
    return Mutant(
        name=f"cuda_{name}",
        law=law,
        source=f"impls/cuda/{file}",
        impl=impl,
        declares=promises,
        edits=edits,
        smallest=ONE | (smallest or {}),
        story=story,
        device=device,
    )


FORWARD = promising(backward=False, cross=True)

MUTANTS = [
    planted(
        "both_rows_behind_the_last_are_read",
        "test_memory_around_inputs_is_not_read",
        "tiles.cuh",
        (("< (rows < ROWS ? rows : ROWS) ? headdim - d : 0;", "< ROWS ? headdim - d : 0;"),),
        "no guard for seqlen % tile: the neighbouring head, or what lies behind the tensor, is read",
        FORWARD,
    ),
    planted(
        "both_rows_behind_the_last_stay_as_they_were",
        "test_ragged_sizes_match_the_definition",
        "tiles.cuh",
        (("if (ROWS % AT_ONCE == 0 || r < ROWS)", "if (r < (rows < ROWS ? rows : ROWS))"),),
        "the last tile is short, and the rest of shared memory holds the tile before, or nothing: 0 * NaN",
        FORWARD,
    ),
    planted(
        "both_rows_behind_the_last_are_stored",
        "test_inputs_come_back_unchanged",
        "tiles.cuh",
        (("        if (row(r) >= rows) continue;\n", ""),),
        "no guard for seqlen % tile: the neighbouring batch is overwritten, or what lies behind out",
        FORWARD,
    ),
    planted(
        "both_columns_behind_headdim_are_stored",
        "test_order_of_batches_and_heads_does_not_matter",
        "tiles.cuh",
        (("if (d + e < headdim) at[e] =", "at[e] ="),),
        "no guard for headdim % 32: the first columns of the neighbouring head are overwritten",
        FORWARD,
        dict(nheads=3),
    ),
    planted(
        "both_columns_behind_headdim_are_read",
        "test_any_layout_equals_the_contiguous_one",
        "tiles.cuh",
        (("stride % 4 == 0 && headdim % 4 == 0;", "stride % 4 == 0;"),),
        "four columns at a time whatever the head dim: the rest of the last four is the neighbouring head's",
        promising(backward=False, strides=True),
        dict(nheads=4, headdim=2),
    ),
    planted(
        "both_last_columns_of_headdim_are_left_out",
        "test_every_column_of_headdim_matters",
        "tiles.cuh",
        (("for (int d = 0; d < columns; d += 4) {", "for (int d = 0; d + 4 <= columns; d += 4) {"),),
        "the number of steps through the head dim is rounded down",
        FORWARD,
        dict(seqlen_k=2),
    ),
    planted(
        "both_sum_is_that_of_half_the_lanes",
        "test_query_sees_exactly_its_prefix",
        "tiles.cuh",
        (("other = LANES / 2; other; other /= 2) x += ", "other = LANES / 4; other; other /= 2) x += "),),
        "a step of the reduction is missing: keys of the other lanes count nothing",
        promising(backward=False, causal="optional"),
        dict(seqlen_q=9, seqlen_k=9),
    ),
    planted(
        "both_sum_reaches_into_the_next_group",
        "test_padding_keys_count_nothing",
        "tiles.cuh",
        (("other = LANES / 2; other; other /= 2) x += ", "other = LANES; other; other /= 2) x += "),),
        "a reduction over the warp, of which half has another row",
        FORWARD,
        dict(seqlen_q=2),
    ),
    planted(
        "both_maximum_is_that_of_half_the_lanes",
        "test_huge_scores_match_the_definition",
        "tiles.cuh",
        (("other = LANES / 2; other; other /= 2) x = fmaxf", "other = LANES / 4; other; other /= 2) x = fmaxf"),),
        "the lanes of a row disagree about its maximum, and add up what was scaled differently",
        FORWARD,
        dict(seqlen_k=9),
    ),
    planted(
        "both_causal_mask_is_one_key_off",
        "test_query_sees_exactly_its_prefix",
        "scores.cuh",
        (("j < p.keys_of(i);", "j <= p.keys_of(i) && j < p.seqlen_k;"),),
        "<= where < was meant: each query sees the next key too",
        promising(backward=False, causal="optional"),
        dict(seqlen_q=2, seqlen_k=2),
    ),
    planted(
        "both_tail_mask_is_left_to_the_causal_mask",
        "test_padding_keys_count_nothing",
        "scores.cuh",
        (("j < p.keys_of(i);", "(p.causal == FULL || j < p.keys_of(i));"),),
        "keys behind the last score 0 and count: the causal mask hides them, where there is one",
        FORWARD,
    ),
    planted(
        "both_diagonal_tile_is_taken_for_clear",
        "test_hidden_keys_change_no_bit",
        "scores.cuh",
        (("<= p.keys_of(first_query) &&", "<= p.keys_of(first_query + KEYS - 1) &&"),),
        "what the last query of a tile sees is taken for what all see: no mask on the diagonal",
        promising(backward=False, causal="optional"),
        dict(seqlen_q=16, seqlen_k=16),
    ),
    planted(
        "both_turned_scores_are_masked_as_upright_ones",
        "test_gradients_match_the_definition",
        "scores.cuh",
        (
            ("(ROWS_ARE_KEYS ? column(c) : row(r))", "row(r)"),
            ("(ROWS_ARE_KEYS ? row(r) : column(c))", "column(c)"),
        ),
        "the backward keeps its scores turned round, the mask takes rows for queries",
        promising(causal="optional"),
        dict(seqlen_q=17, seqlen_k=17),
    ),
    planted(
        "both_scores_that_are_all_hidden_give_nan",
        "test_infinite_bias_hides_exactly_its_keys",
        "scores.cuh",
        (("return maximum == -INFINITY ? 0.0f : maximum;", "return maximum;"),),
        "-inf - -inf, once the whole first tile is hidden",
        promising(backward=False, bias={"vector"}),
        dict(nheads=3, seqlen_q=33, seqlen_k=33),
    ),
    planted(
        "both_rows_without_keys_overflow_in_the_backward",
        "test_rows_without_keys_leave_the_others_alone",
        "scores.cuh",
        (("return x == -INFINITY ? INFINITY : x;", "return x;"),),
        "exp(-inf - -inf): a query that saw nothing makes dk and dv of all keys NaN",
        promising(causal="optional", cross=True, bias={"matrix"}),
        dict(seqlen_q=2),
    ),
    planted(
        "both_bias_is_that_of_the_first_head",
        "test_bias_picks_its_key",
        "problem.cuh",
        (("p.bias.at(b, h, i, j)", "p.bias.at(b, 0, i, j)"),),
        "a bias is taken to be broadcast over the heads",
        promising(backward=False, bias={"vector"}),
        dict(nheads=3, seqlen_q=2, seqlen_k=2),
    ),
    planted(
        "both_causal_mask_starts_at_the_top_left",
        "test_alignment_is_as_declared",
        "problem.cuh",
        (("causal == BOTTOM_RIGHT ? i + seqlen_k - seqlen_q : i;", "i;"),),
        "the lengths differ, the diagonal begins at key 0",
        promising(backward=False, causal="optional", cross=True),
        dict(seqlen_q=2, seqlen_k=2),
    ),
    planted(
        "both_query_does_not_see_its_own_key",
        "test_row_that_sees_one_key_copies_it",
        "problem.cuh",
        (("last < seqlen_k ? last + 1 : seqlen_k;", "last < seqlen_k ? last : seqlen_k;"),),
        "an index is taken for a count",
        promising(backward=False, causal="optional"),
    ),
    planted(
        "both_queries_that_see_a_tile_start_one_late",
        "test_gradients_match_the_definition",
        "problem.cuh",
        (("causal == BOTTOM_RIGHT ? j - seqlen_k + seqlen_q : j;", "j - seqlen_k + seqlen_q + 1;"),),
        "the first query that sees a tile of keys is the first of its own tile, and that is left out",
        promising(causal="optional", cross=True),
        dict(seqlen_q=17, seqlen_k=17),
    ),
    planted(
        "both_scale_zero_is_taken_for_the_default",
        "test_scale_zero_is_q_zero",
        "problem.cuh",
        (("= float(softmax_scale);", "= float(softmax_scale ? softmax_scale : 1 / sqrt(p.headdim));"),),
        "`if (!softmax_scale)`: 0 means that nobody gave one",
        promising(backward=False, softmax_scale=True),
        dict(seqlen_q=2, seqlen_k=2),
    ),
    planted(
        "both_number_of_blocks_is_rounded_down",
        "test_single_query_matches_the_definition",
        "host_backward.cuh",
        (("blocks = (rows + GROUPS - 1) / GROUPS;", "blocks = rows / GROUPS;"),),
        "the number of blocks is rounded down: delta and dq of the last rows are never written",
        promising(cross=True),
    ),
]
