"""The smallest cases of planted bugs whose search takes longer than three seconds.

In `tox` the law judges each of these cases alone; `tox -e thorough` draws cases anew, shrinks, and checks the whole message.
`python -m mutants NAME` prints the line. An empty one: the bug comes and goes (a race), so cases are drawn, but not shrunk.
"""

KEPT = {
    "causal_sees_one_key_too_many_from_query_256_on": "seqlen_q=258 seqlen_k=204 headdim=1 dtype=float32 causal=True",
    "dk_of_late_keys_is_not_stored": "seqlen_q=1 seqlen_k=257 headdim=1 dtype=float32",
    "dq_is_summed_in_any_order": "",
    "dv_of_late_queries_is_left_out": "seqlen_q=257 seqlen_k=1 headdim=1 dtype=float32",
    "tile_that_sees_nothing_is_not_written": "",
    "triton_accumulator_is_not_rescaled": "seqlen_q=1 seqlen_k=39 headdim=1 dtype=float16 seed=3",
    "triton_backward_takes_the_diagonal_tile_for_clear": "seqlen_q=32 seqlen_k=32 headdim=1 dtype=float16 causal=True",
    "triton_bias_batch_moves_by_the_stride_of_a_head": (
        "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float16 batch=2 bias=vector bias_batch=2 seed=1"
    ),
    "triton_bias_is_that_of_the_key_head": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 nheads=2 nheads_k=1 bias=vector bias_nheads=2"
    ),
    "triton_columns_after_the_last_multiple_of_32_are_not_written": "seqlen_q=1 seqlen_k=1 headdim=33 dtype=float16",
    "triton_dbias_is_that_of_the_first_batch": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float16 batch=2 bias=matrix",
    "triton_dbias_of_a_vector_is_that_of_one_tile": "seqlen_q=65 seqlen_k=2 headdim=1 dtype=float16 bias=vector",
    "triton_dbias_sums_two_batches_at_most": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float16 batch=3 bias=matrix",
    "triton_dead_rows_keep_their_lse": "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float16 causal=True",
    "triton_delta_is_that_of_the_first_tile": "seqlen_q=65 seqlen_k=1 headdim=1 dtype=float16",
    "triton_diagonal_tile_is_taken_for_clear": "seqlen_q=32 seqlen_k=32 headdim=1 dtype=float16 causal=True",
    "triton_dout_is_read_with_the_strides_of_out": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float16 layout=packed",
    "triton_dq_ends_at_the_first_query_of_the_tile": "seqlen_q=33 seqlen_k=33 headdim=1 dtype=float16 causal=True",
    "triton_dq_forgets_the_bias": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float16 bias=vector",
    "triton_dq_keeps_the_last_key_tile_only": "seqlen_q=1 seqlen_k=33 headdim=1 dtype=float16",
    "triton_dq_of_a_group_goes_to_the_key_head": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float16 nheads=2 nheads_k=1",
    "triton_dq_of_every_batch_is_that_of_the_first": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 batch=2",
    "triton_first_query_tile_is_skipped": "seqlen_q=33 seqlen_k=33 headdim=1 dtype=float16 causal=True",
    "triton_gqa_reads_keys_of_head_modulo": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float16 nheads=6 nheads_k=3",
    "triton_gqa_sums_one_query_head": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 nheads=2 nheads_k=1",
    "triton_last_stride_is_taken_for_1": "seqlen_q=1 seqlen_k=1 headdim=2 dtype=float16 layout=last_strided",
    "triton_padding_keys_overflow_in_dq": "seqlen_q=31 seqlen_k=31 headdim=1 dtype=float16 regime=shifted_down",
    "triton_row_maximum_of_hidden_keys_is_subtracted": (
        "seqlen_q=1 seqlen_k=40 headdim=1 dtype=float16 bias=vector bias_mask=left"
    ),
    "triton_row_sum_is_not_rescaled": "seqlen_q=1 seqlen_k=39 headdim=1 dtype=float16 seed=3",
    "triton_statistics_of_a_group_are_those_of_a_key_head": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 batch=2 nheads=2 nheads_k=1"
    ),
}

# Judged in `tox -e thorough` alone: bugs of the Numba kernels whose like is planted in the CUDA kernels, and barriers, which
# tests/emulator/numba/test_barriers.py removes from the PTX. A Numba kernel takes a second to compile.
NIGHTLY = {
    "numba_causal_mask_is_one_key_off",
    "numba_causal_mask_starts_at_the_top_left",
    "numba_bias_of_every_head_is_that_of_the_first",
    "numba_backward_forgets_the_bias",
    "numba_columns_behind_headdim_are_read",
    "numba_dbias_is_not_summed_over_heads",
    "numba_dbias_is_scaled",
    "numba_dbias_of_a_vector_is_that_of_one_group",
    "numba_dead_rows_are_divided_by_zero",
    "numba_delta_is_missing",
    "numba_delta_is_that_of_the_first_head",
    "numba_diagonal_tile_is_taken_for_clear",
    "numba_dout_is_read_by_the_strides_of_out",
    "numba_dq_is_the_sum_of_one_split",
    "numba_dv_takes_the_row_of_dout_before",
    "numba_first_tile_that_is_hidden_gives_nan",
    "numba_key_gradients_are_those_of_the_first_query_head",
    "numba_key_head_is_taken_modulo",
    "numba_keys_end_at_the_first_query_of_the_tile",
    "numba_last_tile_of_keys_is_skipped",
    "numba_maximum_is_that_of_half_the_lanes",
    "numba_out_is_not_rescaled",
    "numba_out_is_stored_by_the_strides_of_q",
    "numba_rows_without_keys_keep_their_lse",
    "numba_scale_is_applied_after_the_maximum",
    "numba_scale_is_missing_in_dk",
    "numba_scores_are_not_shifted",
    "numba_splits_add_to_one_sum",
    "numba_sum_is_not_rescaled",
    "numba_sum_is_that_of_one_lane",
}
