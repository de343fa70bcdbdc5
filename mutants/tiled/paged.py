"""Bugs of keys in pages and caches, of new keys, and of splits: docs/why/bugs.md#forms."""

from functools import partial

from flash_attest.mutants.mutant import ONE
from flash_attest.mutants.tiled.build import planted

paged = partial(planted, impl="python_tiled_paged")
cached = partial(planted, impl="python_tiled_cache")

ROW = "x[pages[j // page_size], j % page_size]"
PAIR = "(pages[j // page_size // 2 * 2] + j // page_size % 2)"
CAPPED = "pages[j // page_size] * min(page_size, BLOCK_N)"
LENGTHS = "    for n, seqlen_k in enumerate(lengths):\n"
NEW_ROW = "block_table[n, (length + new) // page_size], (length + new) % page_size"
ALL_KEYS = "0 if k_new is None else k_new.shape[1]"
APPEND = "    append(k, v, block_table, seqused_k, k_new, v_new)\n"
PAGES_OF = "pages=block_table[n]"
NEUTRAL = "lse_parts = q.new_full((num_splits, total_q, nheads, 1), -INF,"
LEFT_OUT = "                if not own and sink is None:\n"
LOADED = "(load_pages(x, pages, j0, first_key, seqlen_k)"
FIRST_OF_X = "first_key if x is k else 0"
SIZE = "size = -(-len(tiles) // num_splits)"
OWN = "own = tiles[part * size : (part + 1) * size]"
SINK = "sink = sinks if part == 0 else None"
MERGED = "merged(out_parts, lse_parts)"
SLOTS = "    slots = cache_batch_idx.unsqueeze(1)\n"
CACHE_APPEND = "append(k, v, slots,"
IN_ORDER = "cache_seqlens.new_tensor(range(batch)).unsqueeze(1)"

MUTANTS = [
    paged(
        name="table_of_pages_is_read_as_contiguous",
        law="test_order_of_pages_does_not_matter",
        edits=((ROW, ROW.replace("pages[j // page_size]", "(pages[0] + j // page_size) % len(x)")),),
        smallest=ONE | dict(seqlen_k=2),
        story="the first page of a sequence is looked up, and the others are taken to follow it",
    ),
    paged(
        name="second_page_of_a_pair_is_taken_to_follow_the_first",
        law="test_order_of_pages_does_not_matter",
        edits=((ROW, ROW.replace("pages[j // page_size]", f"{PAIR} % len(x)")),),
        smallest=ONE | dict(seqlen_k=2),
        story="two pages are loaded at once, from the address of the first one",
    ),
    paged(
        name="pages_are_at_most_as_far_apart_as_a_tile_is_long",
        law="test_order_of_pages_does_not_matter",
        edits=((ROW, f"x.flatten(0, 1)[{CAPPED} + j % page_size]"),),
        smallest=ONE,
        story="pages are counted in boxes of the tile: right until a page is longer than one",
    ),
    paged(
        name="page_number_is_taken_for_a_row",
        law="test_out_matches_the_definition",
        edits=((ROW, "x.flatten(0, 1)[pages[j // page_size] + j % page_size]"),),
        smallest=ONE | dict(batch=2, seqlen_k=2),
        story="the entry of the table is not multiplied by page_size",
    ),
    paged(
        name="all_keys_of_the_last_page_count",
        law="test_padding_keys_count_nothing",
        edits=((LENGTHS, LENGTHS.replace("lengths)", "-(-n // k.shape[1]) * k.shape[1] for n in lengths)")),),
        smallest=ONE,
        story="the tail of the last page is not masked: pages are taken to be full",
    ),
    paged(
        name="last_page_that_is_full_counts_as_empty",
        law="test_padding_keys_count_nothing",
        edits=((LENGTHS, LENGTHS.replace("lengths)", "n - (n % k.shape[1] == 0) * k.shape[1] for n in lengths)")),),
        smallest=ONE,
        story="last_page_len is length % page_size, which is 0 where the last page is full",
    ),
    paged(
        name="table_row_is_counted_over_sequences_with_queries",
        law="test_out_matches_the_definition",
        edits=((PAGES_OF, "pages=block_table[sum(map(bool, queries.lengths[:n]))]"),),
        smallest=ONE,
        story="sequences without queries are left out of the launch, but have a row in the table",
    ),
    paged(
        name="new_keys_are_written_one_row_too_far",
        law="test_append_then_attend_is_concatenate",
        edits=((NEW_ROW, "block_table[n, (length + new) // page_size], (length + new + 1) % page_size"),),
        smallest=ONE,
        story="the slot of a new key is its position in the whole sequence, counted from 1",
    ),
    paged(
        name="new_keys_are_counted_twice",
        law="test_padding_keys_count_nothing",
        edits=(
            (ALL_KEYS, ALL_KEYS.replace("k_new.shape[1]", "2 * k_new.shape[1]")),
            (ROW, ROW.replace("j // page_size", "(j // page_size).clamp(max=len(pages) - 1)")),
        ),
        smallest=ONE,
        story="the length of the cache is raised before the call, and again by the call",
    ),
    paged(
        name="new_keys_are_not_attended_to",
        law="test_padding_keys_count_nothing",
        edits=((ALL_KEYS, "0"),),
        smallest=ONE,
        story="new keys are written, and the length does not grow",
    ),
    paged(
        name="new_keys_of_all_sequences_go_to_the_first",
        law="test_append_then_attend_is_concatenate",
        edits=((NEW_ROW, NEW_ROW.replace("block_table[n,", "block_table[0,")),),
        smallest=ONE | dict(batch=2),
        story="new keys are written through the first row of the table",
    ),
    paged(
        name="split_without_keys_has_a_weight",
        law="test_number_of_splits_does_not_matter",
        edits=((NEUTRAL, NEUTRAL.replace("-INF", "0.0")),),
        smallest=ONE,
        story="a split behind the last tile ends at once and leaves lse at 0, which is not neutral",
    ),
    paged(
        name="sink_joins_in_every_split",
        law="test_number_of_splits_does_not_matter",
        edits=((SINK, "sink = sinks"),),
        smallest=ONE,
        story="each part starts from the sink, so the merge counts it as often as there are splits",
    ),
    paged(
        name="tiles_of_the_last_split_are_rounded_down",
        law="test_padding_keys_count_nothing",
        edits=((SIZE, "size = max(1, len(tiles) // num_splits)"),),
        smallest=ONE | dict(seqlen_k=33),
        story="a split has tiles // num_splits tiles, and the rest belongs to none",
    ),
    paged(
        name="split_behind_the_last_tile_takes_it_again",
        law="test_padding_keys_count_nothing",
        edits=((OWN, "own = tiles[max(0, min(part * size, len(tiles) - 1)) : max(1, (part + 1) * size)]"),),
        smallest=ONE,
        story="the first tile of a split is clamped to the last tile, so that loads stay in bounds",
    ),
    paged(
        name="merge_counts_splits_before_the_window",
        law="test_number_of_splits_does_not_matter",
        edits=(
            (SIZE, "whole = -(-seqlen_k // BLOCK_N)\n            size = -(-whole // num_splits)"),
            (OWN, "own = [j0 for j0 in tiles if part * size <= j0 // BLOCK_N < (part + 1) * size]"),
            (
                LEFT_OUT,
                f"{LEFT_OUT}                    if part * size < whole:  # what its memory held counts as lse\n"
                "                        stale = q.new_zeros(1, nheads, BLOCK_M, 1)\n"
                "                        store_tile(sequence(lse_parts[part], queries, n), i0, stale)\n",
            ),
        ),
        smallest=ONE | dict(seqlen_k=18, num_splits=3),
        story="a split whose keys all lie before the window computes nothing, and the merge sees only the number of keys",
    ),
    paged(
        name="merge_weighs_heads_by_those_of_the_keys",
        law="test_number_of_splits_does_not_matter",
        edits=((MERGED, "merged(out_parts, lse_parts[:, :, kv_head])"),),
        smallest=ONE | dict(seqlen_k=17, nheads=2),
        story="the merge looks up lse by the key head, where the group of query heads is packed",
    ),
    paged(
        name="values_before_the_window_are_multiplied_by_zero",
        law="test_keys_beyond_the_window_change_no_bit",
        edits=((LOADED, f"(load_pages(x, pages, j0, {FIRST_OF_X}, seqlen_k)"),),
        smallest=ONE | dict(seqlen_k=2),
        story="keys of a tile that its window begins in are masked in S, and their v is loaded: 0 * NaN in a freed page",
    ),
    cached(
        name="slots_of_the_cache_are_taken_in_order",
        law="test_out_matches_the_definition",
        edits=((SLOTS, f"    slots = {IN_ORDER}\n"),),
        smallest=ONE,
        story="cache_batch_idx is accepted and ignored",
    ),
    cached(
        name="new_keys_go_to_the_slot_of_their_number",
        law="test_append_then_attend_is_concatenate",
        edits=((CACHE_APPEND, f"append(k, v, {IN_ORDER},"),),
        smallest=ONE,
        story="cache_batch_idx is used where keys are read, and not where new ones are written",
    ),
    cached(
        name="new_keys_go_to_a_slot_of_32_bits",
        law="test_pages_may_lie_far_apart",
        edits=((CACHE_APPEND, "append(k, v, slots.long() * k[0].numel() % 2**31 // k[0].numel(),"),),
        smallest=ONE | dict(nheads=3, seqlen_k=16, headdim=128),
        story="cache_batch_idx times the stride of a slot is a product of two 32-bit integers where new keys are written",
    ),
]
