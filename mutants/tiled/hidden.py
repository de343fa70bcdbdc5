"""Bugs of hidden keys, as blocks and as lists, in both directions: docs/why/bugs.md#masks."""

from flash_attest.mutants.mutant import ONE
from flash_attest.mutants.tiled.build import planted

SHOWN = "test_query_sees_exactly_the_keys_that_are_shown"
GRADIENTS = "test_gradients_match_the_definition"

# python_tiled
ROWS = "rows = (i // HIDDEN_BLOCK[0])"
COLUMNS = "columns = (j // HIDDEN_BLOCK[1])"
OF_TILE = "i, j = i0 + torch.arange(BLOCK_M), j0 + torch.arange(BLOCK_N)"
LOOKED_UP = "return block_mask[:, :, rows][..., columns]"
WITHOUT = "    if block_mask is None:\n        return None\n"
FORWARD = "            shown = shown_in_tile(block_mask, i0, j0)\n            if shown is not None and not shown.any():"
BACKWARD = "shown = shown_in_tile(block_mask, i0, j0)  # as in forward"
HIDDEN = "s = s.masked_fill(~shown, -INF)"

# python_topk
PADDING = "hidden = keys < 0"
GATHERED = "return x[batches, keys.clamp(min=0), heads].float()"
FORWARD_TILES = (
    "    acc = q_rows.new_zeros(*q_rows.shape[:4], v.shape[3])\n    for t in range(0, lists.shape[3], BLOCK_N):\n"
)
LISTS = "return kv_indices.long() if seqlen_k else kv_indices.long()[..., :0]"
FUTURE = "(keys > i + seqlen_k - seqlen_q)"
ADDED = "x.index_put_((batches, keys.clamp(min=0), heads), rows, accumulate=True)"
OF_BACKWARD = "q_rows, do_rows, out_rows ="

MUTANTS = [
    planted(
        name="block_mask_is_transposed",
        law=SHOWN,
        edits=((WITHOUT, WITHOUT + "    block_mask = block_mask.mT\n"),),
        smallest=ONE | dict(seqlen_q=9, seqlen_k=25),
        story="rows of the block mask are taken for blocks of keys",
    ),
    planted(
        name="query_tile_takes_the_block_of_its_first_query",
        law=SHOWN,
        edits=((ROWS, "rows = (i0 // HIDDEN_BLOCK[0] + 0 * i)"),),
        smallest=ONE | dict(seqlen_q=9, seqlen_k=25),
        story="one row of the block mask is read for a tile, which holds two blocks of queries",
    ),
    planted(
        name="key_tile_takes_the_block_of_its_first_key",
        law=SHOWN,
        edits=((COLUMNS, "columns = (j0 // HIDDEN_BLOCK[1] + 0 * j)"),),
        smallest=ONE | dict(seqlen_k=32),
        story="a tile of keys that straddles two blocks ignores the second one",
    ),
    planted(
        name="tile_is_skipped_if_some_of_its_pairs_are_hidden",
        law=SHOWN,
        edits=((FORWARD, FORWARD.replace("any", "all")),),
        smallest=ONE | dict(seqlen_q=9, seqlen_k=25),
        story="a partially visible tile is taken for a hidden one",
    ),
    planted(
        name="document_begins_one_key_late",
        law=SHOWN,
        edits=((COLUMNS, "columns = ((j - 1).clamp(min=0) // HIDDEN_BLOCK[1])"),),
        smallest=ONE | dict(seqlen_k=25),
        story="the first key of a block is counted to the block before it, in forward and backward alike",
    ),
    planted(
        name="blocks_are_numbered_by_the_tile_of_queries",
        law=SHOWN,
        edits=((ROWS, "rows = (i // BLOCK_M)"),),
        smallest=ONE | dict(seqlen_q=9, seqlen_k=25),
        story="blocks are counted by the tiles of the kernel, which is right where both sizes are equal",
    ),
    planted(
        name="block_mask_of_head_0_serves_all_heads",
        law=SHOWN,
        edits=((LOOKED_UP, "return block_mask[:, :1, rows][..., columns]"),),
        smallest=ONE | dict(nheads=2, seqlen_k=25),
        story="the stride of the heads is left out of the address of the block mask",
    ),
    planted(
        name="block_mask_of_batch_0_serves_all_batches",
        law=SHOWN,
        edits=((LOOKED_UP, "return block_mask[:1, :, rows][..., columns]"),),
        smallest=ONE | dict(batch=2, seqlen_k=25),
        story="the block mask is computed once, for the first sequence",
    ),
    planted(
        name="first_visible_tile_is_skipped_behind_a_hidden_one",
        law=SHOWN,
        edits=(
            (
                FORWARD,
                FORWARD
                + "\n                first = j0 + BLOCK_N\n                continue\n            if j0 == first:",
            ),
            (
                "        for j0 in range(max(0, first_key)",
                "        first = None\n        for j0 in range(max(0, first_key)",
            ),
        ),
        smallest=ONE | dict(seqlen_k=33),
        story="the loop steps over the tile behind a hidden one, too, as its loads were begun a tile earlier",
    ),
    planted(
        name="hidden_blocks_keep_a_weight",
        law="test_keys_that_are_not_shown_change_no_bit",
        edits=((HIDDEN, "s = s.masked_fill(~shown, -20.0)"),),
        smallest=ONE | dict(seqlen_q=9, seqlen_k=25, nheads=2),
        story="-20 hides well enough for every tolerance, until a hidden key has a large value",
    ),
    planted(
        name="backward_ignores_the_block_mask",
        law=GRADIENTS,
        edits=((BACKWARD, "shown = None"),),
        smallest=ONE | dict(seqlen_q=9, seqlen_k=25),
        story="the block mask is not passed to the backward, where P is recomputed without it",
    ),
    planted(
        name="backward_exchanges_the_indices_of_the_tile",
        law=GRADIENTS,
        edits=((BACKWARD, "shown = shown_in_tile(block_mask, j0, i0)"),),
        smallest=ONE | dict(seqlen_q=17, seqlen_k=25),
        story="the backward loops over keys first, and asks for the tile in that order",
    ),
    planted(
        impl="python_topk",
        name="index_of_minus_1_is_the_last_key",
        law=SHOWN,
        edits=((PADDING, "hidden = keys < -1"), (GATHERED, "return x[batches, keys, heads].float()")),
        smallest=ONE | dict(seqlen_k=2),
        story="-1 is an index like any other in Python: the last key counts once for each slot of padding",
    ),
    planted(
        impl="python_topk",
        name="padding_counts_as_key_0",
        law=SHOWN,
        edits=((PADDING, "hidden = keys < -1"),),
        smallest=ONE | dict(seqlen_k=2),
        story="indices are clamped so that the load is safe, and the slots are not masked",
    ),
    planted(
        impl="python_topk",
        name="last_slot_is_left_out",
        law=SHOWN,
        edits=((LISTS, "return kv_indices.long()[..., :-1]"),),
        smallest=ONE,
        story="the loop over the lists ends at topk - 1",
    ),
    planted(
        impl="python_topk",
        name="last_tile_of_slots_is_left_out_if_it_is_partial",
        law=SHOWN,
        edits=((LISTS, "return kv_indices.long()[..., : max(BLOCK_N, kv_indices.shape[3] // BLOCK_N * BLOCK_N)]"),),
        smallest=ONE | dict(seqlen_k=17),
        story="the number of tiles of slots is rounded down: topk is a multiple of 64 where the kernel was made",
    ),
    planted(
        impl="python_topk",
        name="lists_of_head_0_serve_all_heads",
        law=SHOWN,
        edits=((LISTS, "return kv_indices.long()[:, :, :1, : seqlen_k or 0].expand(-1, -1, nheads_k, -1)"),),
        smallest=ONE | dict(nheads=3, nheads_k=3, seqlen_k=2),
        story="a model with one key head had one list for all heads",
    ),
    planted(
        impl="python_topk",
        name="lists_of_query_0_serve_all_queries",
        law=SHOWN,
        edits=((LISTS, "return kv_indices.long()[:, :1].expand(-1, seqlen_q, -1, -1)"),),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2),
        story="a decoding kernel has one query; with several, as in speculative decoding, each has its own list",
    ),
    planted(
        impl="python_topk",
        name="causal_mask_compares_slots_with_queries",
        law=SHOWN,
        edits=((FUTURE, "(torch.arange(keys.shape[-1]) > i + seqlen_k - seqlen_q)"),),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2, headdim=2, causal=True),
        story="the index in the loop is taken for the index of the key, as in the dense kernel",
    ),
    planted(
        impl="python_topk",
        name="backward_overwrites_keys_that_queries_share",
        law=GRADIENTS,
        edits=((ADDED, ADDED.replace("accumulate=True", "accumulate=False")),),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2),
        story="dk of a listed key is stored, not added: the last query that lists the key wins",
    ),
    planted(
        impl="python_topk",
        name="backward_ignores_the_lists",
        law=GRADIENTS,
        edits=((OF_BACKWARD, "lists = checked(q, k, v, None)\n    " + OF_BACKWARD),),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2),
        story="the backward is the dense kernel's",
    ),
]
