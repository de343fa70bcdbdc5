"""Bugs of packed sequences in the Triton kernels: where each begins and ends, and whose rows are
whose: docs/why/bugs.md#forms.
"""

from flash_attest.mutants.mutant import TRACED
from flash_attest.mutants.triton.build import planted, supporting

LENGTH = "seqlen = tl.load(cu_seqlens_ptr + b + 1) - first"
QUERIES = "    b_q, seqlen_q = sequence_of(b, seqlen_q, cu_seqlens_q_ptr, VARLEN)\n"
KEYS = "    b_k, seqlen_k = sequence_of(b, seqlen_k, cu_seqlens_k_ptr, VARLEN)\n"
DIAGONALS = "    begin, diagonal = diagonals_of(begin, diagonal, seqlen_q, seqlen_k, VARLEN)\n"
EXIT = "    if VARLEN and i0 >= seqlen_q:"
EXIT_OF_KEYS = "    if VARLEN and j0 >= seqlen_k:"
K = "k_ptr = matrix_of(k_ptr, k_strides, b_k, h // group, ALIGN)"
V = "v = load_tile(v_ptr, j0, v_row, seqlen_k, headdim_v, BLOCK_N, BLOCK_DV, ALIGN, MASKED)"
OUT = "store_tile(out_ptr, out, i0, out_strides.row, seqlen_q,"
LSE = "lse_ptr += statistics_of(bh, h, b_q, seqlen_q, total_q, VARLEN)"
LSE_OF_KEYS = "statistics_of(b * nheads_k * group + h, h, b_q,"
DK = "store_tile(dk_ptr, dk * scale, j0, dk_strides.row, seqlen_k,"
PARTS = "torch.zeros_like(lse) if p.packed else torch.empty_like(lse)"
FIRST = "*batch or [row]"


def varlen(*, backward: bool = False, **features):
    """Return fields of an Implementation of packed sequences that has only these features."""
    return supporting(backward=backward, form="varlen", **features)


def of_one(**more) -> dict:
    """Return bounds of a shrunk case: one sequence and head, but for what is given."""
    return dict(batch=1, nheads=1, headdim=1) | more


MUTANTS = [
    planted(
        name="triton_varlen_mask_is_aligned_by_the_longest_sequences",
        law="test_query_sees_exactly_its_prefix",
        source="forward.py",
        impl="triton_fa2_varlen",
        declares=varlen(causal="optional", cross=True),
        edits=((QUERIES, DIAGONALS + QUERIES), (KEYS + DIAGONALS, KEYS)),
        smallest=of_one(),
        story="the diagonal is computed from max_seqlen_q and max_seqlen_k, which are right for the longest sequence only",
    ),
    planted(
        name="triton_varlen_length_is_that_of_the_sequence_before",
        law="test_out_matches_the_definition",
        source="tiles.py",
        impl="triton_fa2_varlen",
        declares=varlen(cross=True),
        edits=((LENGTH, "seqlen = first - tl.load(cu_seqlens_ptr + tl.maximum(b - 1, 0))"),),
        smallest=of_one(seqlen_q=2, seqlen_k=2),
        story="cu_seqlens is read one place too early for the length: equal lengths hide it, but not the first sequence",
    ),
    planted(
        name="triton_varlen_keys_end_at_the_longest",
        law="test_out_matches_the_definition",
        source="forward.py",
        impl="triton_fa2_varlen",
        declares=varlen(cross=True),
        edits=((KEYS, KEYS.replace("b_k, seqlen_k", "b_k, own")),),
        smallest=of_one(seqlen_q=2, seqlen_k=2),
        story="keys are bounded by max_seqlen_k, so a shorter sequence attends to the next one's",
    ),
    planted(
        name="triton_varlen_keys_begin_where_the_queries_do",
        law="test_out_matches_the_definition",
        source="forward.py",
        impl="triton_fa2_varlen",
        declares=varlen(cross=True),
        edits=((K, K.replace("b_k", "b_q")),),
        smallest=of_one(batch=2, seqlen_q=2, seqlen_k=3),
        story="k is read at cu_seqlens_q, v at cu_seqlens_k: self-attention hides it",
    ),
    planted(
        name="triton_varlen_every_sequence_is_the_first",
        law="test_out_matches_the_definition",
        source="problem.py",
        impl="triton_fa2_varlen",
        declares=varlen(),
        edits=((FIRST, FIRST.replace("row", "0")),),
        smallest=of_one(batch=2, seqlen_q=2, seqlen_k=2),
        story="the first row of a sequence is multiplied by the stride of a batch, which packed tensors do not have",
    ),
    planted(
        name="triton_varlen_values_behind_the_last_key_are_multiplied_by_0",
        law="test_neighbours_change_no_bit",
        source="forward.py",
        impl="triton_fa2_varlen",
        declares=varlen(cross=True),
        edits=((V, V.replace("MASKED", "False")),),
        smallest=of_one(batch=2, seqlen_q=1, seqlen_k=32),
        story="v of the last tile is loaded without a mask, as P is 0 there: 0 * NaN if the next sequence has NaN",
    ),
    planted(
        name="triton_varlen_rows_of_the_next_sequence_are_stored",
        law=TRACED,
        source="forward.py",
        impl="triton_fa2_varlen",
        declares=varlen(),
        edits=((OUT, OUT.replace("seqlen_q", "total_q - b_q")),),
        smallest=of_one(batch=2, seqlen_q=1, seqlen_k=1),
        story="the last tile is stored up to the end of the buffer: the next sequence hides it if its program comes later",
    ),
    planted(
        name="triton_varlen_dk_is_stored_by_whole_tiles",
        law=TRACED,
        source="backward.py",
        impl="triton_fa2_varlen",
        declares=varlen(backward=True),
        edits=((DK, DK.replace("seqlen_k", "j0 + BLOCK_N")),),
        smallest=of_one(batch=2, seqlen_q=1, seqlen_k=1),
        story="dk of the last tile of keys goes on into the rows of the next sequence, and past the buffer",
    ),
    planted(
        name="triton_varlen_lse_of_a_head_is_as_long_as_the_sequence",
        law="test_lse_matches_the_definition",
        source="forward.py",
        impl="triton_fa2_varlen",
        declares=varlen(),
        edits=((LSE, LSE.replace("total_q", "seqlen_q")),),
        smallest=of_one(batch=2, nheads=2, seqlen_q=1, seqlen_k=1),
        story="lse is (nheads, total_q), and is written as if there were one sequence",
    ),
    planted(
        name="triton_varlen_lse_is_read_at_the_keys",
        law="test_gradients_match_the_definition",
        source="backward.py",
        impl="triton_fa2_varlen",
        declares=varlen(backward=True, cross=True),
        edits=((LSE_OF_KEYS, LSE_OF_KEYS.replace("b_q", "b_k")),),
        smallest=of_one(batch=2, seqlen_q=2, seqlen_k=2),
        story="dk and dv read lse and delta at cu_seqlens_k: self-attention hides it",
    ),
    planted(
        name="triton_varlen_sequences_without_keys_are_skipped",
        law="test_no_keys_give_zero",
        source="forward.py",
        impl="triton_fa2_varlen",
        declares=varlen(cross=True),
        edits=((EXIT, "    if VARLEN and ((i0 >= seqlen_q) | (seqlen_k == 0)):"),),
        smallest=of_one(seqlen_q=1, seqlen_k=0),
        story="nothing is to be computed, so a program exits: out and lse keep what their memory held",
    ),
    planted(
        name="triton_varlen_sequences_without_queries_are_skipped",
        law="test_no_queries_give_no_gradient",
        source="backward.py",
        impl="triton_fa2_varlen",
        declares=varlen(backward=True, cross=True),
        edits=((EXIT_OF_KEYS, "    if VARLEN and ((j0 >= seqlen_k) | (seqlen_q == 0)):"),),
        smallest=of_one(seqlen_q=0, seqlen_k=1),
        story="dk and dv of a sequence without queries are 0, but no program writes them",
    ),
    planted(
        name="triton_varlen_last_tile_of_one_query_is_left_out",
        law="test_out_matches_the_definition",
        source="forward.py",
        impl="triton_fa2_varlen",
        declares=varlen(),
        edits=((EXIT, EXIT.replace("i0 >=", "i0 + 1 >=")),),
        smallest=of_one(seqlen_q=1, seqlen_k=1),
        story="a program exits one row too early: a sequence of one query, or of 65, lacks its last row",
    ),
    planted(
        name="triton_varlen_dsink_sums_over_slack",
        law="test_what_memory_held_before_does_not_matter",
        source="attention.py",
        impl="triton_fa2_varlen",
        declares=varlen(backward=True, sinks=True, sink_grad=True),
        edits=((PARTS, "torch.empty_like(lse)"),),
        smallest=of_one(seqlen_q=1, seqlen_k=1),
        story="each query's part of dsink is summed over all rows, and rows behind the last sequence have none",
    ),
]
