"""Bugs of decoding from pages in the Triton kernels: tables, pages, splits, packed heads, new keys:
docs/why/bugs.md#forms.
"""

from typing import Any

import torch

from flash_attest.impls import Supports
from flash_attest.mutants.mutant import ONE, TRACED, Mutant
from flash_attest.mutants.triton import build

TABLE = "block_table_ptr += b.to(tl.int64) * most_pages\n\n"
PAGE = "page = tl.load(table_ptr + j // page_size, mask=seen, other=0)"
NUMBER = "return page.to(tl.int64), (j % page_size).to(tl.int64)"
OF_PAGE = "page * elements(strides.batch, ALIGN)"
OFFSETS = f"offsets = {OF_PAGE} + row * elements(strides.row, ALIGN)"
LOADED = "in_cache = (j >= first) & (j < seqlen_k)"
LOADED_V = "v = load_rows(v_ptr, page, row_of_page, v_strides, in_cache,"
SCORED = "scale, softcap, 0, seqlen_q, seqlen_k, begin, diagonal,"
LENGTH = "seqlen_k = tl.load(seqused_k_ptr + b) + append"
HEADS = "i, h = r // group, h_k * group + r % group"
BEGIN = "    m = tl.full((BLOCK_M,), -INF, tl.float32)\n"
SPLIT = "first_of_split(first, split, num_splits, BLOCK_N), last, num_splits * BLOCK_N"
EQUAL_TILES = "tl.cdiv(tl.cdiv(last, BLOCK_N), num_splits) * BLOCK_N"
APPEND = "        append = 0 if k_new is None else k_new.shape[1]\n"
WHOLE_TILES = "tl.cdiv(last, BLOCK_N) // num_splits * BLOCK_N"
FIRST = "first = tl.maximum(r0 // group + begin, 0)"
LSE = "lse = tl.where(empty, -INF,"
STORED = "mask=exists[:, None] & (columns < headdim_v))"
PLACE = "(split.to(tl.int64) * nheads + h) * total_q + row"
NEW = "j = tl.load(seqused_k_ptr + b) + new"


def paged(splits: tuple[int, ...] = (1,), **features: Any) -> dict[str, Any]:
    """Return fields of an Implementation with pages that supports only these features."""
    supports = Supports(
        dtypes={torch.float16}, headdims=range(1, 65), form="paged", page_sizes=(4, 16), splits=splits, **features
    )
    return dict(supports=supports, share=0.01)


def planted(*, source: str = "decode.py", smallest: dict[str, Any] | None = None, **fields: Any) -> Mutant:
    """Return a mutant of decoding. smallest: the fields in which the shrunk case may exceed ONE."""
    return build.planted(impl="triton_paged_decode", source=source, smallest=ONE | (smallest or {}), **fields)


MUTANTS = [
    # --- tables and pages -------------------------------------------------------------------------
    planted(
        name="triton_paged_every_sequence_has_the_first_table",
        law="test_out_matches_the_definition",
        declares=paged(cross=True),
        edits=((TABLE, "\n"),),
        smallest=dict(batch=2),
        story="the pointer to the table is not moved to the row of the sequence",
    ),
    planted(
        name="triton_paged_page_is_taken_for_an_offset",
        law="test_out_matches_the_definition",
        declares=paged(cross=True),
        edits=((OFFSETS, OFFSETS.replace(OF_PAGE, "page")),),
        smallest=dict(seqlen_k=5),
        story="page numbers are added to offsets as if they were elements; page 0 hides it",
    ),
    planted(
        name="triton_paged_pages_are_taken_for_contiguous",
        law="test_out_matches_the_definition",
        declares=paged(cross=True),
        edits=((PAGE, "page = tl.load(table_ptr + j * 0, mask=seen, other=0) + j // page_size"),),
        smallest=dict(seqlen_k=5),
        story="the table is read once: right as long as a sequence's pages lie one behind the other",
    ),
    planted(
        name="triton_paged_offsets_of_pages_have_32_bits",
        law="test_pages_may_lie_far_apart",
        declares=paged(cross=True, strides="last_contiguous"),
        edits=((OFFSETS, OFFSETS.replace(OF_PAGE, f"({OF_PAGE}).to(tl.int32)")),),
        smallest=dict(seqlen_k=16, nheads=12, headdim=128),
        story="page number times stride is computed in int32: right until a pool has 2^31 elements",
    ),
    planted(
        name="triton_paged_page_numbers_have_16_bits",
        law="test_pages_may_lie_far_apart",
        declares=paged(cross=True),
        edits=((NUMBER, NUMBER.replace("page.to(tl.int64)", "page.to(tl.int16).to(tl.int64)")),),
        story="a table in int16 was enough for the first pools; from 2^15 pages on numbers are negative",
    ),
    planted(
        name="triton_paged_ends_of_pages_are_read",
        law="test_memory_around_inputs_is_not_read",
        declares=paged(cross=True),
        edits=((LOADED, "in_cache = (j >= first) & (j < tl.cdiv(seqlen_k, page_size) * page_size)"),),
        story="whole pages are loaded, and what stands behind the last key is multiplied by 0",
    ),
    planted(
        name="triton_paged_values_before_the_window_are_loaded",
        law="test_keys_beyond_the_window_change_no_bit",
        declares=paged(cross=True, window={"left"}),
        edits=((LOADED_V, LOADED_V.replace("in_cache", "j < seqlen_k")),),
        smallest=dict(seqlen_k=2),
        story="the window masks S, and whole tiles of V: a page that was freed holds NaN, and 0 * NaN is NaN",
    ),
    planted(
        name="triton_paged_ends_of_pages_count",
        law="test_padding_keys_count_nothing",
        declares=paged(cross=True),
        edits=((SCORED, SCORED.replace("seqlen_k", "tl.cdiv(seqlen_k, page_size) * page_size")),),
        story="lengths are counted in pages",
    ),
    planted(
        name="triton_paged_full_last_page_is_dropped",
        law="test_out_matches_the_definition",
        declares=paged(cross=True),
        edits=((SCORED, SCORED.replace("seqlen_k", "seqlen_k - tl.where(seqlen_k % page_size == 0, page_size, 0)")),),
        smallest=dict(seqlen_k=4),
        story="the last page has length % page_size keys, which is 0 for a full one",
    ),
    # --- splits -----------------------------------------------------------------------------------
    planted(
        name="triton_paged_splits_leave_the_last_tiles_out",
        law="test_out_matches_the_definition",
        declares=paged(splits=(1, 2, 3), cross=True),
        edits=((SPLIT, f"split * ({WHOLE_TILES}), (split + 1) * ({WHOLE_TILES}), BLOCK_N"),),
        smallest=dict(seqlen_k=1),
        story="each split has tiles // num_splits tiles, and nobody has the rest",
    ),
    planted(
        name="triton_paged_split_without_keys_writes_nothing",
        law="test_what_memory_held_before_does_not_matter",
        declares=paged(splits=(1, 2, 3), cross=True),
        edits=((BEGIN, f"    if first_of_split(first, split, num_splits, BLOCK_N) >= last:\n        return\n{BEGIN}"),),
        story="a program without work returns early, and the merge reads what torch.empty left there",
    ),
    planted(
        name="triton_paged_split_without_keys_has_lse_0",
        law="test_lse_matches_the_definition",
        declares=paged(splits=(1, 2, 3), cross=True),
        edits=((LSE, "lse = tl.where(empty, 0.0,"),),
        story="log(max(l, 1)) in place of -inf: an empty part has a weight, and takes a share",
    ),
    planted(
        name="triton_paged_splits_share_lse",
        law=TRACED,
        declares=paged(splits=(1, 2, 3), cross=True),
        edits=((PLACE, "h * total_q + row"),),
        story="the lse of the parts has no dimension for splits: the last program to write it wins",
    ),
    planted(
        name="triton_paged_sink_counts_in_every_split",
        law="test_sink_takes_its_share",
        source="merge.py",
        declares=paged(splits=(1, 2, 3), cross=True, sinks=True),
        edits=(("l = tl.exp2((sink - m_safe) * LOG2E)", "l = num_parts * tl.exp2((sink - m_safe) * LOG2E)"),),
        story="each split begins with the sink, and the merge adds them up",
    ),
    planted(
        name="triton_paged_splits_follow_the_length",
        law="test_chunks_change_no_bit",
        declares=paged(splits=(1, 2, 3), cross=True, causal="optional"),
        edits=((SPLIT, f"split * ({EQUAL_TILES}), tl.minimum((split + 1) * ({EQUAL_TILES}), last), BLOCK_N"),),
        smallest=dict(seqlen_q=4, seqlen_k=100, headdim=4),
        story="each split has an equal share of the keys, so a longer prompt moves the bounds: right, with other bits",
    ),
    planted(
        name="triton_paged_a_small_batch_has_more_splits",
        law="test_batch_changes_no_bit",
        source="paged.py",
        declares=paged(splits=(1, 2, 3), cross=True),
        edits=((APPEND, f"{APPEND}        num_splits = max(1, min(num_splits, 4 // max(batch, 1)))\n"),),
        smallest=dict(seqlen_k=100, headdim=4),
        story="as many splits as keep the multiprocessors busy: right, with other bits beside other sequences",
    ),
    # --- packed heads and rows --------------------------------------------------------------------
    planted(
        name="triton_paged_heads_of_a_group_are_a_power_of_two",
        law="test_out_matches_the_definition",
        declares=paged(cross=True, gqa=True),
        edits=((HEADS, HEADS.replace("r % group", "(r & (group - 1))")),),
        smallest=dict(nheads=3),
        story="a mask in place of the remainder: groups of 3, 5 or 6 heads are mixed up",
    ),
    planted(
        name="triton_paged_window_begins_at_the_row_of_the_tile",
        law="test_query_sees_exactly_its_window",
        declares=paged(cross=True, gqa=True, window={"left"}),
        edits=((FIRST, FIRST.replace("r0 // group", "r0")),),
        smallest=dict(nheads=16, seqlen_q=17, seqlen_k=70),
        story="a row of packed heads is taken for a query, so later tiles begin too far to the right",
    ),
    planted(
        name="triton_paged_rows_behind_the_last_query_are_stored",
        law=TRACED,
        declares=paged(splits=(1, 2, 3), cross=True),
        edits=((STORED, "mask=columns < headdim_v)"),),
        story="a tile of one query has 16 rows, and the others belong to the next sequence or split",
    ),
    # --- new keys ---------------------------------------------------------------------------------
    planted(
        name="triton_paged_new_keys_are_not_attended_to",
        law="test_out_matches_the_definition",
        declares=paged(cross=True, append=True),
        edits=((LENGTH, LENGTH.removesuffix(" + append")),),
        story="seqused_k is the length before the call",
    ),
    planted(
        name="triton_paged_new_keys_go_behind_those_of_the_first_sequence",
        law="test_out_matches_the_definition",
        declares=paged(cross=True, append=True),
        edits=((NEW, "j = tl.load(seqused_k_ptr) + new"),),
        smallest=dict(batch=1),
        story="one length is read for the batch: right while all sequences are equally long",
    ),
]  # fmt: skip
