"""The smallest cases of planted bugs, so that `tox` need not search for them. Each law fails on one
of these cases, or a search finds a bug of it. Some bugs of a law are left out.

In `tox` the law judges each of these cases alone (for kernels, one case of each law and family).
`tox -e thorough` judges all of them, draws cases again, shrinks, and checks the whole message.
`flash-attest power NAME` prints the line. An empty case means that the bug is intermittent (a
race), so cases are drawn, but not shrunk.
"""

KEPT = {
    "a_backward_of_one_query_is_kept": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "a_group_of_more_than_four_heads_reads_keys_as_one_of_four": (
        "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 nheads=15 nheads_k=3"
    ),
    "a_large_batch_has_larger_tiles": "seqlen_q=1 seqlen_k=17 headdim=1 dtype=float32 seed=1",
    "a_prefill_reads_keys_from_the_last_to_the_first": "seqlen_q=2 seqlen_k=19 headdim=1 dtype=float32 seed=3",
    "a_single_query_has_another_exp": "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float32 sinks=count",
    "a_single_query_keeps_p_in_float32": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=bfloat16 seed=2",
    "a_single_sequence_has_another_exp": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=2 sinks=count",
    "accumulator_is_rounded_to_half": "seqlen_q=5 seqlen_k=33 headdim=1 dtype=float16 regime=mean seed=2",
    "address_is_rounded_down_to_16_bytes": "seqlen_q=1 seqlen_k=1 headdim=4 dtype=float32 layout=offset",
    "address_of_the_first_row_stands_for_all": "seqlen_q=1 seqlen_k=1 headdim=4 dtype=float32 nheads=2 layout=odd_rows",
    "alignment_switches_with_more_queries_than_keys": "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float32 causal=True",
    "all_keys_of_the_last_page_count": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 page_size=3",
    "an_empty_sequence_overwrites_the_next_row": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 neighbours=empty",
    "answers_are_kept_by_address": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "answers_are_kept_by_address_and_version": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "answers_are_kept_by_shape": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "backward_exchanges_the_indices_of_the_tile": (
        "seqlen_q=1 seqlen_k=25 headdim=1 dtype=float32 hidden=documents hidden_block=8:24 seed=2"
    ),
    "backward_ignores_bias": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 bias=vector",
    "backward_ignores_causal": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 causal=True",
    "backward_ignores_the_block_mask": (
        "seqlen_q=1 seqlen_k=25 headdim=1 dtype=float32 hidden=documents hidden_block=8:24 seed=2"
    ),
    "backward_ignores_the_cap": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 softcap=2.0",
    "backward_ignores_the_lists": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 hidden=documents",
    "backward_ignores_the_window": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 window=0:",
    "backward_is_always_causal": "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float32",
    "backward_overwrites_keys_that_queries_share": "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float32",
    "backward_recomputes_p_without_the_sink": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 sinks=count",
    "backward_uses_the_default_scale": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 softmax_scale=0.5",
    "batch_index_has_16_bits": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 batch=65601",
    "batches_from_the_fourth_on_read_its_keys": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 batch=5",
    "batches_of_an_expanded_q_share_a_gradient": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 batch=2 seed=1",
    "batches_past_those_of_the_first_call_stay_empty": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "bias_gets_no_gradient_when_q_requires_none": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 bias=vector seed=47",
    "bias_is_capped_too": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 bias=vector softcap=2.0",
    "bias_is_rounded_to_bfloat16": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 bias=vector",
    "bias_is_scaled": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 bias=vector softmax_scale=0.5",
    "bias_of_head_0_serves_all_heads": (
        "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 nheads=2 bias=vector bias_nheads=2 seed=1"
    ),
    "bias_row_is_that_of_the_first_query": "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float32 bias=matrix bias_mask=alibi",
    "bias_saturates": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 bias=vector",
    "bias_steps_by_heads_from_batch_to_batch": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 batch=2 nheads=2 bias=vector bias_nheads=2"
    ),
    "block_mask_is_transposed": (
        "seqlen_q=1 seqlen_k=25 headdim=1 dtype=float32 hidden=documents hidden_block=8:24 seed=2"
    ),
    "block_mask_of_batch_0_serves_all_batches": (
        "seqlen_q=1 seqlen_k=25 headdim=1 dtype=float32 batch=2 hidden=documents hidden_block=8:24"
    ),
    "block_mask_of_head_0_serves_all_heads": (
        "seqlen_q=1 seqlen_k=25 headdim=1 dtype=float32 nheads=2 hidden=documents hidden_block=8:24"
    ),
    "blocks_are_numbered_by_the_tile_of_queries": (
        "seqlen_q=9 seqlen_k=25 headdim=1 dtype=float32 hidden=documents hidden_block=8:24 seed=2"
    ),
    "bound_on_keys_forgets_the_offset": "seqlen_q=1 seqlen_k=17 headdim=1 dtype=float32 causal=True",
    "cap_is_applied_after_the_mask": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 causal=True softcap=2.0",
    "cap_is_applied_before_the_scale": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 softcap=5.0 softmax_scale=0.5",
    "cap_is_kept_from_the_first_call": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 softcap=5.0",
    "cap_is_truncated_to_an_integer": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 softcap=2.5",
    "causal_aligns_top_left": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 causal=True",
    "causal_drops_its_last_key_from_out_alone": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 causal=True",
    "causal_is_ignored_with_a_window": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 causal=True window=0:",
    "causal_is_that_of_the_first_call": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32",
    "causal_mask_compares_slots_with_queries": (
        "seqlen_q=2 seqlen_k=2 headdim=2 dtype=float32 causal=True hidden=documents seed=1"
    ),
    "causal_mask_value_is_finite": "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float32 causal=True",
    "causal_sees_one_key_too_many": "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float32 causal=True",
    "causal_sees_one_key_too_many_from_query_256_on": "seqlen_q=258 seqlen_k=204 headdim=1 dtype=float32 causal=True",
    "causal_skipped_in_second_query_tile": "seqlen_q=18 seqlen_k=1 headdim=1 dtype=float32 causal=True",
    "causal_strict_in_partial_tile": "seqlen_q=17 seqlen_k=1 headdim=1 dtype=float32 causal=True",
    "columns_after_the_last_multiple_of_32_are_not_written": (
        "seqlen_q=1 seqlen_k=1 headdim=33 dtype=float32 regime=selecting"
    ),
    "columns_behind_the_row_are_read": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "columns_of_bias_wrap_at_512": "seqlen_q=1 seqlen_k=588 headdim=1 dtype=float32 bias=vector seed=1",
    "columns_of_dk_beyond_headdim_v_are_not_stored": "seqlen_q=1 seqlen_k=2 headdim=3 dtype=float32 headdim_v=1",
    "columns_of_dv_beyond_headdim_are_not_stored": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 headdim_v=3",
    "columns_of_v_beyond_headdim_are_left_out": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 headdim_v=3",
    "columns_of_v_wrap_around_at_headdim": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 headdim_v=3",
    "contiguous_tensors_must_have_equal_strides": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 layout=size_one",
    "cuda_backward_barrier_1": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_backward_barrier_2": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_backward_barrier_3": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_backward_barrier_4": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_backward_barrier_5": "seqlen_q=1 seqlen_k=17 headdim=1 dtype=float32",
    "cuda_backward_delta_is_missing": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_backward_delta_reads_dout_by_the_strides_of_out": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=2",
    "cuda_backward_dk_behind_the_last_key_is_stored": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_backward_dq_has_a_sum_from_the_first_key_tile_on": "seqlen_q=1 seqlen_k=17 headdim=1 dtype=float32 window=0:",
    "cuda_backward_dq_is_added_to_what_was_there": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_backward_dq_is_the_first_sum": "seqlen_q=1 seqlen_k=65 headdim=1 dtype=float32",
    "cuda_backward_dv_is_that_of_the_first_query_head": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=2 nheads_k=1"
    ),
    "cuda_backward_forgets_the_bias": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 bias=vector seed=2",
    "cuda_backward_lse_is_that_of_the_key_head": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=3 nheads_k=1",
    "cuda_backward_masks_only_the_right_side": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 window=0:",
    "cuda_backward_queries_end_with_those_of_the_first_key": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 window=0:",
    "cuda_backward_slope_of_the_cap_is_missing": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 softcap=5.0",
    "cuda_backward_splits_add_to_one_sum": "seqlen_q=1 seqlen_k=65 headdim=1 dtype=float32",
    "cuda_backward_sums_are_those_of_the_first_blocks": "seqlen_q=1 seqlen_k=65 headdim=1 dtype=float32 window=0:",
    "cuda_backward_sums_of_unseen_queries_are_added": "seqlen_q=65 seqlen_k=65 headdim=1 dtype=float32 causal=True",
    "cuda_bias_gradient_barrier_1": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 bias=vector",
    "cuda_bias_gradient_barrier_2": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=2 bias=vector",
    "cuda_bias_gradient_barrier_3": "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float32 bias=vector",
    "cuda_both_address_of_the_first_row_is_not_checked": "seqlen_q=1 seqlen_k=1 headdim=4 dtype=float32 layout=offset",
    "cuda_both_bias_is_capped_too": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 bias=vector softcap=5.0",
    "cuda_both_bias_is_that_of_the_first_head": (
        "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 nheads=2 bias=vector bias_nheads=2 seed=1"
    ),
    "cuda_both_cap_comes_before_the_scale": "seqlen_q=1 seqlen_k=1 headdim=2 dtype=float32 softcap=5.0",
    "cuda_both_causal_mask_is_one_key_off": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 causal=True",
    "cuda_both_causal_mask_starts_at_the_top_left": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 causal=True",
    "cuda_both_columns_behind_headdim_are_read": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=4 layout=transposed"
    ),
    "cuda_both_columns_behind_headdim_are_stored": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_both_diagonal_tile_is_taken_for_clear": "seqlen_q=16 seqlen_k=16 headdim=1 dtype=float32 causal=True",
    "cuda_both_distance_of_rows_is_not_checked": "seqlen_q=2 seqlen_k=2 headdim=4 dtype=float32 layout=odd_rows",
    "cuda_both_last_columns_of_headdim_are_left_out": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32",
    "cuda_both_left_edge_tile_is_taken_for_clear": "seqlen_q=17 seqlen_k=16 headdim=1 dtype=float32 window=0:",
    "cuda_both_maximum_is_that_of_half_the_lanes": "seqlen_q=1 seqlen_k=9 headdim=1 dtype=float32 regime=shifted_up",
    "cuda_both_number_of_blocks_is_rounded_down": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_both_offset_in_a_tile_is_unsigned": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float16",
    "cuda_both_queries_that_see_a_tile_start_one_late": "seqlen_q=16 seqlen_k=1 headdim=1 dtype=float32 causal=True",
    "cuda_both_query_does_not_see_its_own_key": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 causal=True",
    "cuda_both_rows_behind_the_last_are_read": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_both_rows_behind_the_last_are_stored": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_both_rows_behind_the_last_stay_as_they_were": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 regime=shifted_down"
    ),
    "cuda_both_rows_without_keys_overflow_in_the_backward": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 bias=matrix bias_mask=dead_row"
    ),
    "cuda_both_scale_zero_is_taken_for_the_default": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 softmax_scale=0.0",
    "cuda_both_scores_that_are_all_hidden_give_nan": (
        "seqlen_q=18 seqlen_k=18 headdim=1 dtype=float32 nheads=3 bias=vector bias_mask=left"
    ),
    "cuda_both_sum_is_that_of_half_the_lanes": "seqlen_q=9 seqlen_k=9 headdim=1 dtype=float32 causal=True",
    "cuda_both_sum_reaches_into_the_next_group": "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_both_tail_mask_is_left_to_the_causal_mask": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_both_turned_scores_are_masked_as_upright_ones": "seqlen_q=17 seqlen_k=17 headdim=1 dtype=float32",
    "cuda_both_window_is_left_to_the_causal_mask": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 window=0:",
    "cuda_dbias_is_not_summed_over_the_batch": (
        "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 batch=2 bias=matrix bias_mask=alibi"
    ),
    "cuda_dbias_is_rounded_to_the_dtype_of_q": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float16 bias=vector",
    "cuda_dbias_is_scaled": "seqlen_q=2 seqlen_k=2 headdim=2 dtype=float32 bias=vector",
    "cuda_dbias_misses_a_group_of_rows": "seqlen_q=8 seqlen_k=8 headdim=1 dtype=float32 bias=vector",
    "cuda_fa1_forward_barrier_1": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_fa1_forward_barrier_3": "seqlen_q=1 seqlen_k=17 headdim=1 dtype=float32",
    "cuda_fa1_keys_are_as_many_as_queries": "seqlen_q=1 seqlen_k=17 headdim=1 dtype=float32",
    "cuda_fa1_out_is_not_cleared_before_it_is_summed": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_fa1_out_is_rescaled_without_the_sum": "seqlen_q=1 seqlen_k=17 headdim=1 dtype=float32",
    "cuda_fa1_statistics_are_those_of_the_other_group": "seqlen_q=17 seqlen_k=17 headdim=1 dtype=float32",
    "cuda_fa1_statistics_are_written_by_all_lanes": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_fa1_statistics_begin_as_memory_was": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_fa1_sum_is_not_rescaled": "seqlen_q=1 seqlen_k=17 headdim=1 dtype=float32",
    "cuda_fa1_sums_begin_as_torch_empty": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_fa1_values_are_those_of_the_first_head": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=2",
    "cuda_fa2_barrier_is_left_out_behind_the_left_edge": "seqlen_q=16 seqlen_k=32 headdim=1 dtype=float32 window=16:",
    "cuda_fa2_batches_share_lse": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 batch=2",
    "cuda_fa2_first_tile_of_the_window_is_skipped": "seqlen_q=2 seqlen_k=3 headdim=1 dtype=float32 window=0:",
    "cuda_fa2_forward_barrier_1": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_fa2_forward_barrier_4": "seqlen_q=1 seqlen_k=17 headdim=1 dtype=float32",
    "cuda_fa2_heads_share_lse_from_65_queries_on": "seqlen_q=65 seqlen_k=1 headdim=1 dtype=float32 nheads=2",
    "cuda_fa2_key_heads_alternate": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=6 nheads_k=3",
    "cuda_fa2_keys_begin_at_the_last_query_of_the_tile": "seqlen_q=3 seqlen_k=5 headdim=1 dtype=float32 window=1:",
    "cuda_fa2_keys_end_at_the_first_query_of_the_tile": "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float32 causal=True",
    "cuda_fa2_keys_wrap_around_at_256": "seqlen_q=1 seqlen_k=257 headdim=1 dtype=float32",
    "cuda_fa2_lanes_wait_at_two_barriers_of_one_line": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_fa2_last_tile_of_keys_is_dropped": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_fa2_lse_is_the_logarithm_of_the_sum": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 regime=exact",
    "cuda_fa2_lse_is_written_by_every_piece": "seqlen_q=1 seqlen_k=1 headdim=33 dtype=float32",
    "cuda_fa2_lse_of_every_batch_is_that_of_the_first": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 batch=2",
    "cuda_fa2_maximum_is_not_kept": "seqlen_q=17 seqlen_k=17 headdim=2 dtype=float32 causal=True",
    "cuda_fa2_maximum_is_taken_before_a_negative_scale": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 softmax_scale=-1.0 regime=shifted_up"
    ),
    "cuda_fa2_maximum_starts_at_zero": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 regime=shifted_down",
    "cuda_fa2_out_is_stored_by_the_strides_of_q": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 layout=packed",
    "cuda_fa2_query_heads_of_a_group_share_lse": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=2 nheads_k=1",
    "cuda_fa2_rows_without_keys_are_divided_by_zero": "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float32 causal=True",
    "cuda_fa2_shared_memory_is_a_row_short": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_fa2_skipped_tile_is_still_on_its_way": "seqlen_q=1 seqlen_k=17 headdim=1 dtype=float32 window=0:",
    "cuda_fa2_sum_is_not_rescaled": "seqlen_q=3 seqlen_k=17 headdim=1 dtype=float32 seed=1",
    "cuda_fa2_third_tile_of_keys_is_loaded_over_the_second": "seqlen_q=1 seqlen_k=33 headdim=1 dtype=float32",
    "cuda_fa2_tiles_of_queries_share_lse": "seqlen_q=17 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_failed_launch_is_not_noticed": "seqlen_q=1 seqlen_k=1 headdim=118 dtype=float32",
    "cuda_last_factor_is_read_before_it_is_written": "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_probabilities_are_read_before_they_are_written": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_rows_behind_the_last_are_loaded": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_rows_behind_the_last_are_stored": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_scores_of_hidden_keys_are_not_written": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_shared_memory_is_a_row_short": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "cuda_tiles_are_read_before_they_are_loaded": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "dbias_is_multiplied_by_the_derivative_of_the_cap": (
        "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 bias=vector softcap=2.0"
    ),
    "dbias_is_not_summed_where_it_broadcasts": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 bias=vector",
    "dbias_is_scaled": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 bias=vector softmax_scale=0.5",
    "dbias_keeps_the_last_query_tile": "seqlen_q=17 seqlen_k=2 headdim=1 dtype=float32 bias=vector",
    "dbias_of_the_last_partial_tile_is_not_stored": "seqlen_q=1 seqlen_k=17 headdim=1 dtype=float32 bias=matrix",
    "dead_row_has_lse_zero": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 bias=matrix bias_mask=dead_row",
    "dead_row_subtracts_infinities": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 bias=matrix bias_mask=dead_row",
    "dead_row_turns_all_key_gradients_into_nan": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 bias=matrix bias_mask=dead_row"
    ),
    "default_scale_is_that_of_the_first_headdim": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "delta_has_an_epsilon": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "delta_is_omitted": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "delta_is_that_of_the_call_before": "seqlen_q=24 seqlen_k=24 headdim=1 dtype=float32",
    "delta_is_that_of_the_first_tile": "seqlen_q=17 seqlen_k=1 headdim=1 dtype=float32",
    "delta_sums_64_columns": "seqlen_q=1 seqlen_k=1 headdim=65 dtype=float32",
    "delta_sums_the_columns_of_headdim": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 headdim_v=3",
    "denominator_has_an_epsilon": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 causal=True",
    "derivative_of_the_cap_is_left_out": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 softcap=2.0",
    "derivative_of_the_cap_is_not_squared": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 softcap=2.0",
    "diagonal_on_the_edge_of_a_tile_ends_one_tile_early": "seqlen_q=1 seqlen_k=65 headdim=1 dtype=float32 causal=True",
    "dk_is_not_scaled": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 softmax_scale=0.5",
    "dk_is_scaled_twice_when_q_requires_no_grad": (
        "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 softmax_scale=0.5 seed=2"
    ),
    "dk_of_late_keys_is_not_stored": "seqlen_q=1 seqlen_k=257 headdim=1 dtype=float32",
    "dk_of_one_sequence_is_added_to_the_next": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 neighbours=one",
    "document_begins_one_key_late": (
        "seqlen_q=1 seqlen_k=25 headdim=1 dtype=float32 hidden=documents hidden_block=8:24 seed=2"
    ),
    "dout_in_bfloat16_goes_through_float16": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=bfloat16",
    "dout_is_read_with_the_batch_stride_of_q": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 batch=2 layout=mixed",
    "dout_is_read_with_the_strides_of_out": (
        "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 nheads=2 nheads_k=1 layout=transposed"
    ),
    "dout_of_dead_rows_is_cleared_in_place": "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float32 causal=True",
    "dp_sums_the_columns_of_headdim": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 headdim_v=3",
    "dq_accumulates_into_fresh_memory": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "dq_goes_from_tile_to_tile_in_half": "seqlen_q=3 seqlen_k=4100 headdim=7 dtype=float16 regime=mean",
    "dq_goes_on_from_the_last_call": "seqlen_q=24 seqlen_k=24 headdim=1 dtype=float32",
    "dq_is_kept_in_fixed_point": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 seed=1",
    "dq_is_not_scaled": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 softmax_scale=0.5",
    "dq_is_stored_in_half_before_it_is_scaled": (
        "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float16 softmax_scale=0.1 regime=one_sign"
    ),
    "dq_keeps_the_last_key_tile_only": "seqlen_q=1 seqlen_k=17 headdim=1 dtype=float32",
    "dq_of_a_single_sequence_is_summed_in_two_parts": "seqlen_q=1 seqlen_k=33 headdim=1 dtype=float32 seed=1",
    "ds_is_rounded_to_half": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32",
    "dsink_has_the_sign_of_delta": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 bias=vector sinks=count",
    "dsink_is_that_of_the_first_batch": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 batch=2 bias=vector sinks=count",
    "dsink_is_that_of_the_last_query_tile": "seqlen_q=17 seqlen_k=1 headdim=1 dtype=float32 bias=vector sinks=count",
    "dsink_is_that_of_the_last_sequence": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 batch=2 sinks=count",
    "dsink_is_the_weight_of_the_sink": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 bias=vector sinks=count",
    "dsink_lacks_the_gradient_of_lse": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 sinks=count dlse=True",
    "dv_goes_from_tile_to_tile_in_half": "seqlen_q=126 seqlen_k=3 headdim=1 dtype=float16 regime=mean",
    "dv_of_late_queries_is_left_out": "seqlen_q=257 seqlen_k=1 headdim=1 dtype=float32",
    "dv_sums_over_queries_of_the_next_sequence": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 neighbours=one seed=2",
    "dv_uses_the_row_of_dout_before": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "evenness_of_queries_is_taken_for_that_of_keys": "seqlen_q=16 seqlen_k=1 headdim=1 dtype=float32",
    "expanded_dout_is_taken_for_its_first_row": "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float32",
    "exponential_has_a_short_constant": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32",
    "every_backward_is_compiled_like_the_first_one": (
        "seqlen_q=40 seqlen_k=40 headdim=1 dtype=float32 batch=2 nheads=2"
    ),
    "few_queries_are_computed_without_their_maximum": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 batch=2 regime=shifted_up"
    ),
    "few_queries_of_usual_heads_read_keys_of_the_first_batch": "seqlen_q=1 seqlen_k=2 headdim=64 dtype=float32 batch=2",
    "few_queries_read_keys_as_if_contiguous": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 batch=2 layout=packed",
    "first_tile_of_the_window_is_skipped_if_it_is_partial": "seqlen_q=2 seqlen_k=3 headdim=1 dtype=float32 window=0:",
    "first_visible_tile_is_skipped_behind_a_hidden_one": (
        "seqlen_q=1 seqlen_k=25 headdim=1 dtype=float32 hidden=documents hidden_block=8:24 seed=2"
    ),
    "gqa_keeps_the_last_query_head": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=2 nheads_k=1",
    "gqa_sums_the_wrong_heads": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=6 nheads_k=3",
    "gqa_takes_the_head_modulo": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=6 nheads_k=3",
    "gradient_of_lse_has_the_wrong_sign": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 dlse=True",
    "gradient_of_lse_is_dropped": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 dlse=True",
    "gradient_of_lse_is_dropped_without_dout": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 dlse=True",
    "gradient_of_lse_is_taken_for_base_2": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 dlse=True",
    "gradient_of_lse_is_that_of_the_first_head": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=2 dlse=True",
    "gradients_are_kept_by_address": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "gradients_of_keys_from_the_second_tile_of_128_on_are_halved": "seqlen_q=256 seqlen_k=256 headdim=16 dtype=float32",
    "heads_beyond_the_grid_are_not_computed": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 nheads=65601",
    "heads_from_the_ninth_on_read_keys_of_the_first_ones": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=9",
    "heads_of_an_expanded_k_share_a_gradient": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 nheads=2",
    "hidden_blocks_keep_a_weight": (
        "seqlen_q=9 seqlen_k=1 headdim=1 dtype=float32 causal=True hidden=dead_rows hidden_block=8:24 seed=4"
    ),
    "hidden_tile_turns_out_into_nan": (
        "seqlen_q=1 seqlen_k=129 headdim=5 dtype=float32 bias=matrix bias_mask=dead_row bias_keeps_key=True seed=2"
    ),
    "index_of_minus_1_is_the_last_key": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 hidden=documents",
    "infinite_bias_is_made_finite": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 bias=vector bias_mask=right",
    "key_heads_are_those_of_the_first_group": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=2 nheads_k=1",
    "key_tile_takes_the_block_of_its_first_key": (
        "seqlen_q=1 seqlen_k=25 headdim=1 dtype=float32 hidden=documents hidden_block=8:24 seed=2"
    ),
    "keys_are_read_with_the_strides_of_queries": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=2 layout=mixed",
    "keys_are_split_where_few_sequences_are_in_the_batch": "seqlen_q=2 seqlen_k=18 headdim=1 dtype=float32",
    "keys_are_taken_for_heads_when_there_are_as_many": (
        "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 nheads=2 regime=shifted_down"
    ),
    "keys_are_transposed_when_there_are_as_many_as_columns": "seqlen_q=1 seqlen_k=2 headdim=2 dtype=float32",
    "keys_before_the_window_keep_a_weight": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 window=0:",
    "keys_behind_the_last_split_of_256_are_dropped": "seqlen_q=1 seqlen_k=257 headdim=1 dtype=float32",
    "keys_from_65536_on_are_dropped_but_the_last": "seqlen_q=1 seqlen_k=65601 headdim=1 dtype=float32",
    "keys_in_use_are_as_many_as_queries": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32",
    "keys_of_a_batch_are_taken_for_all_of_its_buffer": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 batch=2 layout=sliced"
    ),
    "keys_of_the_next_sequence_fill_the_last_tile": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 neighbours=one seed=2"
    ),
    "keys_past_those_of_the_first_call_are_not_read": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "keys_start_where_the_queries_of_the_sequence_do": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 neighbours=one",
    "last_key_is_lost_when_the_tile_divides_seqlen": "seqlen_q=1 seqlen_k=16 headdim=1 dtype=float32",
    "last_page_that_is_full_counts_as_empty": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "last_query_tile_is_dropped_in_backward": "seqlen_q=17 seqlen_k=1 headdim=1 dtype=float32 regime=shifted_down",
    "last_row_is_written_by_a_late_thread": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "last_slot_is_left_out": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 hidden=documents",
    "last_split_of_a_single_query_is_dropped": "seqlen_q=1 seqlen_k=65 headdim=1 dtype=float32",
    "last_tile_is_not_rescaled": "seqlen_q=3 seqlen_k=17 headdim=1 dtype=float32 seed=1",
    "last_tile_of_exactly_300_keys_is_left_to_the_other_path": "seqlen_q=1 seqlen_k=300 headdim=1 dtype=float32",
    "last_tile_of_slots_is_left_out_if_it_is_partial": (
        "seqlen_q=1 seqlen_k=17 headdim=1 dtype=float32 hidden=documents seed=1"
    ),
    "launch_fails_unnoticed_for_wide_heads": "seqlen_q=1 seqlen_k=1 headdim=97 dtype=float32",
    "left_side_of_the_window_aligns_top_left": "seqlen_q=2 seqlen_k=3 headdim=1 dtype=float32 window=0:",
    "lengths_of_the_first_call_are_kept": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32",
    "lists_of_head_0_serve_all_heads": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 nheads=3 hidden=documents",
    "lists_of_query_0_serve_all_queries": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 hidden=tree seed=1",
    "log_n_scaling_is_left_on": "seqlen_q=65 seqlen_k=65 headdim=1 dtype=float32 causal=True",
    "long_calls_clear_the_workspace_before_and_short_ones_after": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "loop_over_keys_ends_at_the_first_hidden_tile": (
        "seqlen_q=19 seqlen_k=35 headdim=1 dtype=float32 nheads=12 nheads_k=3 bias=vector bias_mask=first_and_window seed=3"
    ),
    "lse_forgets_the_maximum": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "lse_is_of_unscaled_scores": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 softmax_scale=0.5",
    "lse_is_off_by_ln_2": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "lse_is_stored_in_half": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "lse_is_that_of_batch_0": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 batch=2",
    "lse_is_that_of_the_keys_alone": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 sinks=count",
    "lse_of_a_head_begins_behind_the_last_sequence": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=2 nheads_k=1 slack=1"
    ),
    "lse_of_a_tile_without_keys_lacks_the_sink": (
        "seqlen_q=17 seqlen_k=1 headdim=1 dtype=float32 causal=True sinks=count"
    ),
    "lse_of_all_calls_has_one_place": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "mask_hides_by_the_least_number": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 bias=boolean_matrix bias_mask=dead_row"
    ),
    "mask_hides_where_it_is_true": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 bias=boolean_vector bias_mask=right",
    "mask_is_added_to_the_scores": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 bias=boolean_vector bias_mask=right",
    "mask_is_compared_in_bfloat16": "seqlen_q=258 seqlen_k=258 headdim=5 dtype=float32 causal=True",
    "mask_of_a_batch_is_read_as_that_of_a_head": (
        "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 batch=2 nheads=2 bias=boolean_vector bias_batch=2 seed=1"
    ),
    "masks_below_minus_1e8_are_taken_for_infinite": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 bias=vector bias_mask=right"
    ),
    "maximum_becomes_the_mask_value_in_a_hidden_tile": (
        "seqlen_q=1 seqlen_k=129 headdim=1 dtype=float32 bias=matrix bias_mask=dead_row bias_keeps_key=True"
    ),
    "maximum_creeps_away_from_the_one_in_use": "seqlen_q=1 seqlen_k=97 headdim=8 dtype=float16 regime=uneven seed=2",
    "maximum_is_not_subtracted": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 regime=shifted_up",
    "maximum_is_taken_before_a_negative_scale": (
        "seqlen_q=25 seqlen_k=25 headdim=1 dtype=float32 softmax_scale=0.5 hidden=documents hidden_block=8:24 seed=2"
    ),
    "maximum_is_that_of_all_rows_of_a_tile": "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float32 regime=uneven",
    "maximum_leaves_the_sink_out": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 sinks=high",
    "merge_counts_splits_before_the_window": "seqlen_q=1 seqlen_k=17 headdim=1 dtype=float32 window=0: num_splits=2",
    "merge_ends_at_the_first_part_without_keys": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 num_splits=2",
    "merge_reads_lse_with_queries_before_heads": (
        "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 nheads=2 nheads_k=1 num_splits=3"
    ),
    "merge_subtracts_no_maximum": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 regime=shifted_up num_splits=2",
    "merge_takes_lse_for_base_2": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 num_splits=3",
    "merge_weighs_all_parts_alike": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 num_splits=3",
    "merge_weighs_heads_by_those_of_the_keys": (
        "seqlen_q=1 seqlen_k=17 headdim=1 dtype=float32 nheads=2 nheads_k=1 num_splits=2"
    ),
    "merged_lse_is_the_largest": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 num_splits=3",
    "new_keys_are_counted_twice": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 page_size=3 append=1",
    "new_keys_are_not_attended_to": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 append=1",
    "new_keys_are_written_one_row_too_far": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 page_size=3 append=1",
    "new_keys_go_to_a_slot_of_32_bits": (
        "seqlen_q=1 seqlen_k=1 headdim=57 dtype=float32 nheads=2 slack=17 append=1 seed=2"
    ),
    "new_keys_go_to_the_slot_of_their_number": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 append=1",
    "new_keys_of_all_sequences_go_to_the_first": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 neighbours=one append=1"
    ),
    "next_value_tile_arrives_too_early": "seqlen_q=24 seqlen_k=24 headdim=1 dtype=float32",
    "no_keys_give_lse_zero": "seqlen_q=1 seqlen_k=0 headdim=1 dtype=float32",
    "no_more_than_four_splits_are_launched": "seqlen_q=1 seqlen_k=65 headdim=1 dtype=float32 num_splits=8",
    "no_queries_crash_the_backward": "seqlen_q=0 seqlen_k=1 headdim=1 dtype=float32",
    "numba_backward_leaves_the_left_edge_unmasked": "seqlen_q=16 seqlen_k=16 headdim=1 dtype=float32 window=0:",
    "numba_bfloat16_is_cut_off": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=bfloat16 seed=2",
    "numba_fa2_batches_share_lse": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 batch=2",
    "numba_first_query_may_be_negative": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "numba_float16_is_accumulated_in_float16": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float16 nheads=3 seed=2",
    "numba_offsets_have_32_bits": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=2",
    "numba_queries_end_with_those_of_the_first_key": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 window=0:",
    "numba_query_heads_of_a_group_store_one_dk": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=2 nheads_k=1",
    "numba_sizes_are_frozen_from_globals": "seqlen_q=1 seqlen_k=65 headdim=1 dtype=float32",
    "numba_slope_of_the_cap_is_in_dv": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 softcap=5.0",
    "numba_sums_of_dq_begin_as_torch_empty": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "numba_window_is_one_key_longer_on_the_left": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 window=0:",
    "number_of_keys_has_16_bits": "seqlen_q=1 seqlen_k=65601 headdim=1 dtype=float32",
    "offset_of_a_page_has_32_bits": "seqlen_q=1 seqlen_k=7 headdim=87 dtype=float16 nheads=3 page_size=16",
    "offset_of_a_tile_overflows": "seqlen_q=12 seqlen_k=65 headdim=3 dtype=float32 regime=selecting seed=1",
    "only_64_columns_enter_the_score": "seqlen_q=2 seqlen_k=2 headdim=65 dtype=float32",
    "out_is_kept_in_fixed_point": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 seed=1",
    "out_is_truncated_to_bfloat16": (
        "seqlen_q=1 seqlen_k=3 headdim=36 dtype=bfloat16 nheads=2 nheads_k=1 regime=exact seed=2"
    ),
    "output_buffer_is_used_again": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "packed_mask_aligns_by_the_longest_sequence": (
        "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float32 causal=True neighbours=one"
    ),
    "packed_output_is_allocated_once": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "packed_tiles_are_counted_by_the_first_sequence": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 neighbours=empty",
    "padded_half_tile_overflows": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 regime=shifted_down",
    "padded_rows_start_behind_the_longest_sequence": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 neighbours=one slack=1"
    ),
    "padding_counts_as_key_0": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 hidden=documents",
    "padding_is_masked_after_the_load": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "padding_of_a_shorter_sequence_counts_as_keys": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 neighbours=one",
    "page_number_has_16_bits": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "page_number_is_taken_for_a_row": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 batch=2 page_size=3",
    "pages_are_at_most_as_far_apart_as_a_tile_is_long": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 page_size=64 page_order=shuffled"
    ),
    "pages_are_read_in_the_order_of_their_numbers": (
        "seqlen_q=2 seqlen_k=3 headdim=1 dtype=float32 page_order=shuffled seed=3"
    ),
    "parts_of_512_keys_are_merged_without_weights": (
        "seqlen_q=1 seqlen_k=521 headdim=1 dtype=float32 nheads=6 nheads_k=3 seed=1"
    ),
    "probabilities_have_four_bits": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32",
    "queries_are_restored_only_after_success": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "queries_before_a_key_tile_are_counted_without_the_offset": (
        "seqlen_q=1 seqlen_k=17 headdim=1 dtype=float32 causal=True"
    ),
    "queries_behind_a_key_tile_are_counted_from_its_first_key": (
        "seqlen_q=17 seqlen_k=17 headdim=1 dtype=float32 window=1:"
    ),
    "queries_behind_a_key_tile_are_counted_without_the_offset": (
        "seqlen_q=18 seqlen_k=1 headdim=1 dtype=float32 window=0:"
    ),
    "queries_from_65536_on_give_no_gradient": "seqlen_q=65601 seqlen_k=3 headdim=1 dtype=float32",
    "query_tile_takes_the_block_of_its_first_query": (
        "seqlen_q=9 seqlen_k=25 headdim=1 dtype=float32 hidden=documents hidden_block=8:24 seed=2"
    ),
    "right_side_of_the_window_is_ignored": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 window=:0",
    "ring_of_tiles_wraps_around": "seqlen_q=1 seqlen_k=473 headdim=1 dtype=float32 seed=2",
    "row_maximum_is_rounded_to_half": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 nheads=2 softcap=5.0 seed=3",
    "row_maximum_is_taken_before_the_mask": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 causal=True seed=1",
    "row_maximum_is_that_of_all_batches": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 batch=2",
    "row_maximum_is_that_of_the_first_tile": (
        "seqlen_q=1 seqlen_k=21 headdim=1 dtype=float32 nheads=3 nheads_k=1 bias=vector bias_nheads=3 bias_mask=right"
    ),
    "row_maximum_starts_at_a_hundred_million_below": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 bias=vector bias_mask=right"
    ),
    "row_maximum_starts_at_ten_thousand_below": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 bias=matrix bias_mask=finite"
    ),
    "row_maximum_starts_at_zero": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 regime=shifted_down",
    "row_sum_is_not_rescaled": "seqlen_q=3 seqlen_k=17 headdim=1 dtype=float32 seed=1",
    "rows_are_taken_for_packed_if_their_elements_are": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 layout=packed",
    "rows_behind_a_packed_sequence_are_multiplied_by_zero": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 slack=1",
    "rows_behind_the_new_keys_are_cleared": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 page_size=16 append=1",
    "rows_lie_as_far_apart_as_the_heads_of_one": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 layout=size_one seed=2",
    "rows_of_nobody_are_not_written": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 slack=1",
    "rows_up_to_max_seqlen_are_written": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 slack=1",
    "scale_equal_to_the_default_is_not_applied": "seqlen_q=1 seqlen_k=1 headdim=2 dtype=float32",
    "scale_has_a_floor": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 softmax_scale=0.0009765625 regime=flat",
    "scale_is_taken_from_a_table": "seqlen_q=1 seqlen_k=1 headdim=31 dtype=float32",
    "scale_is_that_of_headdim_v": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 headdim_v=3",
    "scale_is_that_of_the_first_call": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 softmax_scale=0.5",
    "scale_is_that_of_the_padded_headdim": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "scale_of_the_keys_scales_shared_values": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 softmax_scale=0.5 shared_kv=True"
    ),
    "scores_are_clamped": "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float32 nheads=2 regime=exact",
    "scores_are_cut_at_the_cap": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 softcap=5.0",
    "scores_are_multiplied_by_their_tanh": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 softcap=5.0",
    "second_page_of_a_pair_is_taken_to_follow_the_first": (
        "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 page_order=shuffled"
    ),
    "second_tile_of_the_edge_is_not_masked": "seqlen_q=3 seqlen_k=18 headdim=1 dtype=float32 window=0:",
    "sequences_without_queries_are_remembered": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 neighbours=empty",
    "shared_values_are_the_last_columns": "seqlen_q=1 seqlen_k=1 headdim=3 dtype=float32 headdim_v=1 shared_kv=True",
    "shared_values_have_rows_of_their_own_length": (
        "seqlen_q=1 seqlen_k=1 headdim=3 dtype=float32 nheads=2 headdim_v=1 shared_kv=True"
    ),
    "sink_is_capped": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=2 softcap=2.0 sinks=count",
    "sink_is_dropped": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 sinks=count",
    "sink_is_scaled": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=2 softmax_scale=0.5 sinks=count",
    "sink_is_that_of_the_head_modulo_key_heads": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=2 nheads_k=1 sinks=count"
    ),
    "sink_is_that_of_the_key_head": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=2 nheads_k=1 sinks=count",
    "sink_joins_in_every_split": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 sinks=count num_splits=2",
    "sink_joins_once_for_each_key_tile": "seqlen_q=1 seqlen_k=17 headdim=1 dtype=float32 sinks=count",
    "sink_joins_without_exp": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 sinks=count",
    "sink_that_is_off_gives_nan": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 sinks=some_off",
    "slices_from_the_129th_on_are_not_written": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 batch=43 nheads=3",
    "slots_of_the_cache_are_taken_in_order": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "split_behind_the_last_tile_takes_it_again": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 num_splits=2",
    "split_size_follows_the_number_of_keys": "seqlen_q=2 seqlen_k=65 headdim=1 dtype=float32 causal=True seed=1",
    "split_without_keys_has_a_weight": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 num_splits=2",
    "strides_are_those_of_the_first_call": "seqlen_q=2 seqlen_k=2 headdim=2 dtype=float32",
    "sum_is_wider_at_some_addresses": "seqlen_q=1 seqlen_k=3 headdim=1 dtype=float32 seed=1",
    "table_of_pages_is_read_as_contiguous": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 page_order=shuffled",
    "table_row_is_counted_over_sequences_with_queries": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 neighbours=empty"
    ),
    "tail_is_cleared_behind_the_keys": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "tail_tile_is_dropped": "seqlen_q=1 seqlen_k=17 headdim=1 dtype=float32",
    "tanh_is_approximate_and_not_declared": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 softcap=2.0",
    "tf32_is_not_declared": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "tile_is_lost_once_in_twenty": "seqlen_q=24 seqlen_k=24 headdim=1 dtype=float32",
    "tile_is_skipped_by_its_first_query": (
        "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float32 causal=True bias=vector bias_mask=left"
    ),
    "tile_is_skipped_if_some_of_its_pairs_are_hidden": (
        "seqlen_q=1 seqlen_k=25 headdim=1 dtype=float32 hidden=documents hidden_block=8:24 seed=2"
    ),
    "tile_of_64_is_skipped_by_its_first_query": "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float32 causal=True",
    "tile_that_sees_nothing_is_not_written": "seqlen_q=17 seqlen_k=1 headdim=1 dtype=float32 causal=True",
    "tiles_before_the_window_are_taken_for_whole": "seqlen_q=2 seqlen_k=18 headdim=1 dtype=float32 window=0:",
    "tiles_of_the_last_split_are_rounded_down": "seqlen_q=1 seqlen_k=33 headdim=1 dtype=float32 num_splits=2",
    "triton_accumulator_is_not_rescaled": "seqlen_q=1 seqlen_k=39 headdim=1 dtype=float16 seed=3",
    "triton_address_of_the_first_row_is_not_checked": "seqlen_q=1 seqlen_k=1 headdim=8 dtype=float16 layout=offset",
    "triton_backward_takes_the_diagonal_tile_for_clear": "seqlen_q=32 seqlen_k=32 headdim=1 dtype=float16 causal=True",
    "triton_bias_batch_moves_by_the_stride_of_a_head": (
        "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float16 batch=2 bias=vector bias_batch=2 seed=1"
    ),
    "triton_bias_is_that_of_the_key_head": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 nheads=2 nheads_k=1 bias=vector bias_nheads=2"
    ),
    "triton_cap_is_in_base_e": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 softcap=5.0",
    "triton_causal_aligns_top_left": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float16 causal=True",
    "triton_columns_after_the_last_multiple_of_32_are_not_written": "seqlen_q=1 seqlen_k=1 headdim=33 dtype=float16",
    "triton_columns_behind_the_row_are_read": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16",
    "triton_columns_of_dv_beyond_headdim_v_are_stored": "seqlen_q=1 seqlen_k=1 headdim=16 dtype=float16 headdim_v=8",
    "triton_columns_of_v_are_masked_by_headdim": "seqlen_q=1 seqlen_k=1 headdim=8 dtype=float16 headdim_v=16",
    "triton_compiled_atomics_add_to_torch_empty": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16",
    "triton_compiled_dq_is_loaded_added_and_stored": "seqlen_q=1 seqlen_k=17 headdim=1 dtype=float16",
    "triton_compiled_heads_share_lse": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 nheads=2",
    "triton_compiled_products_take_the_default_precision": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "triton_compiled_row_sums_go_through_memory": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16",
    "triton_compiled_tf32_operands_are_cut_off": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "triton_compiled_tiles_of_queries_share_lse": "seqlen_q=65 seqlen_k=65 headdim=1 dtype=float16",
    "triton_contiguous_tensors_must_have_equal_strides": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 layout=size_one"
    ),
    "triton_dbias_is_that_of_the_first_batch": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float16 batch=2 bias=matrix",
    "triton_dbias_of_a_vector_is_that_of_one_tile": "seqlen_q=65 seqlen_k=2 headdim=1 dtype=float16 bias=vector",
    "triton_dbias_sums_two_batches_at_most": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float16 batch=3 bias=matrix",
    "triton_dead_rows_divide_by_zero": "seqlen_q=1 seqlen_k=0 headdim=1 dtype=float16",
    "triton_dead_rows_keep_their_lse": "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float16 causal=True",
    "triton_delta_is_that_of_the_first_tile": "seqlen_q=65 seqlen_k=1 headdim=1 dtype=float16",
    "triton_diagonal_tile_is_taken_for_clear": "seqlen_q=32 seqlen_k=32 headdim=1 dtype=float16 causal=True",
    "triton_dk_dv_sum_over_queries_behind_the_window": "seqlen_q=32 seqlen_k=16 headdim=1 dtype=float16 window=0:",
    "triton_dk_goes_from_tile_to_tile_in_half": "seqlen_q=768 seqlen_k=3 headdim=1 dtype=bfloat16 regime=mean seed=2",
    "triton_dk_lacks_the_slope_of_the_cap": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float16 softcap=5.0",
    "triton_dlse_is_added": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 dlse=True",
    "triton_dlse_is_in_base_2": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=bfloat16 dlse=True",
    "triton_dout_is_read_with_the_strides_of_out": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float16 layout=packed",
    "triton_dq_ends_at_the_first_query_of_the_tile": "seqlen_q=33 seqlen_k=33 headdim=1 dtype=float16 causal=True",
    "triton_dq_forgets_the_bias": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float16 bias=vector",
    "triton_dq_forgets_the_window": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float16 window=0:",
    "triton_dq_keeps_the_last_key_tile_only": "seqlen_q=1 seqlen_k=33 headdim=1 dtype=float16",
    "triton_dq_of_a_group_goes_to_the_key_head": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float16 nheads=2 nheads_k=1",
    "triton_dq_of_every_batch_is_that_of_the_first": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 batch=2",
    "triton_dsink_is_in_base_e": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 sinks=spread",
    "triton_dsink_is_that_of_each_batch_and_head": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 batch=2 sinks=count",
    "triton_dsink_is_that_of_the_first_query_tile": "seqlen_q=33 seqlen_k=1 headdim=1 dtype=float16 sinks=count",
    "triton_first_query_tile_is_skipped": "seqlen_q=33 seqlen_k=33 headdim=1 dtype=float16 causal=True",
    "triton_gqa_reads_keys_of_head_modulo": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float16 nheads=6 nheads_k=3",
    "triton_gqa_sums_one_query_head": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 nheads=2 nheads_k=1",
    "triton_last_edge_of_the_window_is_read_one_tile_early": (
        "seqlen_q=96 seqlen_k=97 headdim=1 dtype=float16 window=0:"
    ),
    "triton_last_key_tile_is_dropped": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16",
    "triton_last_stride_is_taken_for_1": "seqlen_q=1 seqlen_k=1 headdim=2 dtype=float16 layout=last_strided",
    "triton_maximum_is_that_of_all_rows_of_a_tile": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 regime=uneven seed=3"
    ),
    "triton_maximum_of_the_first_tile_forgets_the_sink": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 sinks=high",
    "triton_merge_leaves_the_last_part_out": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 num_splits=2",
    "triton_merge_lse_adds_a_logarithm_in_base_2": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float16 num_splits=3 seed=1",
    "triton_merge_lse_lies_as_out_does": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float16 nheads=2 num_splits=3",
    "triton_merge_parts_have_one_batch": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 batch=2 num_splits=2",
    "triton_merge_parts_without_keys_give_nan": "seqlen_q=1 seqlen_k=0 headdim=1 dtype=float16",
    "triton_merge_weights_are_powers_of_two": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float16 num_splits=3 seed=1",
    "triton_merge_weights_lack_the_maximum": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 regime=shifted_up",
    "triton_negative_scale_stays_out_of_the_queries": (
        "seqlen_q=32 seqlen_k=32 headdim=1 dtype=float16 softmax_scale=0.5 seed=2"
    ),
    "triton_offsets_in_a_tile_have_32_bits": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float16",
    "triton_offsets_of_batches_have_32_bits": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 batch=4",
    "triton_padding_keys_overflow_in_dq": "seqlen_q=31 seqlen_k=31 headdim=1 dtype=float16 regime=shifted_down",
    "triton_paged_a_small_batch_has_more_splits": "seqlen_q=1 seqlen_k=39 headdim=2 dtype=float16 num_splits=2 seed=1",
    "triton_paged_ends_of_pages_are_read": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16",
    "triton_paged_ends_of_pages_count": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16",
    "triton_paged_every_sequence_has_the_first_table": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 neighbours=empty",
    "triton_paged_full_last_page_is_dropped": "seqlen_q=1 seqlen_k=4 headdim=1 dtype=float16",
    "triton_paged_heads_of_a_group_are_a_power_of_two": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 nheads=3 nheads_k=1"
    ),
    "triton_paged_new_keys_are_not_attended_to": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 append=1",
    "triton_paged_new_keys_go_behind_those_of_the_first_sequence": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 neighbours=empty append=1"
    ),
    "triton_paged_offsets_of_pages_have_32_bits": (
        "seqlen_q=1 seqlen_k=1 headdim=15 dtype=float16 nheads=9 page_size=16"
    ),
    "triton_paged_page_is_taken_for_an_offset": "seqlen_q=1 seqlen_k=5 headdim=1 dtype=float16",
    "triton_paged_page_numbers_have_16_bits": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16",
    "triton_paged_pages_are_taken_for_contiguous": "seqlen_q=1 seqlen_k=5 headdim=1 dtype=float16 page_order=shuffled",
    "triton_paged_rows_behind_the_last_query_are_stored": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16",
    "triton_paged_sink_counts_in_every_split": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 sinks=count num_splits=2",
    "triton_paged_split_without_keys_has_lse_0": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 num_splits=2",
    "triton_paged_split_without_keys_writes_nothing": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 num_splits=2",
    "triton_paged_splits_follow_the_length": (
        "seqlen_q=2 seqlen_k=65 headdim=1 dtype=float16 causal=True num_splits=2 seed=1"
    ),
    "triton_paged_splits_leave_the_last_tiles_out": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 num_splits=2",
    "triton_paged_splits_share_lse": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 num_splits=2",
    "triton_paged_values_before_the_window_are_loaded": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float16 window=0:",
    "triton_paged_window_begins_at_the_row_of_the_tile": (
        "seqlen_q=3 seqlen_k=3 headdim=1 dtype=float16 nheads=16 nheads_k=1 window=0:"
    ),
    "triton_queries_of_a_key_tile_end_at_those_of_its_first_key": (
        "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float16 window=0:"
    ),
    "triton_row_maximum_of_hidden_keys_is_subtracted": (
        "seqlen_q=1 seqlen_k=40 headdim=1 dtype=float16 bias=vector bias_mask=left"
    ),
    "triton_row_sum_is_not_rescaled": "seqlen_q=1 seqlen_k=39 headdim=1 dtype=float16 seed=3",
    "triton_scale_is_that_of_headdim_v": "seqlen_q=2 seqlen_k=2 headdim=8 dtype=float16 headdim_v=16",
    "triton_scale_zero_is_taken_for_the_default": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 softmax_scale=0.0",
    "triton_sink_is_in_base_e": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 nheads=2 sinks=count",
    "triton_sink_is_that_of_the_key_head": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 nheads=2 nheads_k=1 sinks=count"
    ),
    "triton_slope_of_the_cap_is_that_of_masked_scores": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 softcap=5.0",
    "triton_slope_of_the_cap_squares_the_capped_score": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float16 softcap=5.0",
    "triton_statistics_of_a_group_are_those_of_a_key_head": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 batch=2 nheads=2 nheads_k=1"
    ),
    "triton_tail_mask_is_left_to_the_causal_mask": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16",
    "triton_tanh_is_of_scores_in_base_2": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float16 softcap=5.0",
    "triton_tile_of_the_left_edge_is_not_masked": "seqlen_q=2 seqlen_k=32 headdim=1 dtype=float16 window=0:",
    "triton_tile_of_the_left_edge_is_that_of_the_first_query": (
        "seqlen_q=32 seqlen_k=32 headdim=1 dtype=float16 window=0:"
    ),
    "triton_values_are_summed_in_half": "seqlen_q=1 seqlen_k=8 headdim=1 dtype=float16 regime=one_sign seed=1",
    "triton_varlen_dk_is_stored_by_whole_tiles": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 batch=2",
    "triton_varlen_dsink_sums_over_slack": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 sinks=count slack=1",
    "triton_varlen_every_sequence_is_the_first": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 neighbours=empty",
    "triton_varlen_keys_begin_where_the_queries_do": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float16 neighbours=empty",
    "triton_varlen_keys_end_at_the_longest": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 slack=1",
    "triton_varlen_last_tile_of_one_query_is_left_out": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16",
    "triton_varlen_length_is_that_of_the_sequence_before": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16",
    "triton_varlen_lse_is_read_at_the_keys": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 neighbours=empty",
    "triton_varlen_lse_of_a_head_is_as_long_as_the_sequence": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 nheads=2 slack=1"
    ),
    "triton_varlen_mask_is_aligned_by_the_longest_sequences": (
        "seqlen_q=2 seqlen_k=1 headdim=1 dtype=float16 causal=True neighbours=empty"
    ),
    "triton_varlen_rows_of_the_next_sequence_are_stored": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float16 batch=2 seed=1"
    ),
    "triton_varlen_sequences_without_keys_are_skipped": "seqlen_q=1 seqlen_k=0 headdim=1 dtype=float16",
    "triton_varlen_sequences_without_queries_are_skipped": "seqlen_q=0 seqlen_k=1 headdim=1 dtype=float16",
    "triton_varlen_values_behind_the_last_key_are_multiplied_by_0": (
        "seqlen_q=1 seqlen_k=16 headdim=1 dtype=float16 batch=2 seed=16"
    ),
    "triton_width_of_v_is_not_checked_for_wide_loads": "seqlen_q=1 seqlen_k=1 headdim=8 dtype=float16 headdim_v=20",
    "triton_window_starts_at_the_next_key_tile": "seqlen_q=3 seqlen_k=5 headdim=1 dtype=float16 window=1:",
    "undeclared_key_heads_are_read_by_their_own_number": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 nheads=2",
    "value_tile_is_the_one_before": "seqlen_q=11 seqlen_k=17 headdim=2 dtype=float32 regime=selecting",
    "values_are_clamped_at_448": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32",
    "values_are_read_with_the_batch_stride_of_keys": (
        "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 batch=2 layout=mixed"
    ),
    "values_are_scaled_by_the_largest_of_the_buffer": "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 batch=2",
    "values_are_taken_for_contiguous": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 layout=packed",
    "values_before_the_window_are_multiplied_by_zero": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 window=0:",
    "values_of_a_tile_are_summed_in_half": "seqlen_q=1 seqlen_k=8 headdim=1 dtype=float16 regime=one_sign seed=1",
    "values_saturate": "seqlen_q=1 seqlen_k=1 headdim=2 dtype=float32 regime=exact seed=83",
    "weights_of_the_merge_are_rounded_to_half": "seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 num_splits=3",
    "window_counts_the_query_itself": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 window=0:",
    "window_is_ignored_with_a_causal_mask": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 causal=True window=0:",
    "window_is_that_of_the_first_call": "seqlen_q=4 seqlen_k=4 headdim=1 dtype=float32",
    "window_of_0_is_taken_for_none": "seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 window=0:",
}

# These are judged only in `tox -e thorough`: bugs of the Numba kernels that are also planted in
# other kernels, and barriers, which tests/emulator/numba/test_barriers.py removes from the PTX. A
# Numba kernel takes seconds to compile. Of the other families, bugs whose law finds others.
NIGHTLY = {
    "splits_follow_the_longest_sequence_of_the_batch",
    "keys_are_split_where_every_sequence_has_one_query",
    "dq_is_summed_in_any_order",
    "keys_wrap_around_at_65536",
    "cuda_backward_delta_is_that_of_the_first_head",
    "cuda_backward_scale_is_missing_in_dk",
    "cuda_dbias_lacks_delta",
    "cuda_fa2_out_is_not_rescaled",
    "numba_rows_behind_the_last_are_stored",
    "cuda_fa1_forward_barrier_2",
    "cuda_fa2_forward_barrier_2",
    "cuda_next_tile_is_loaded_over_the_last",
    "triton_lse_is_in_base_2",
    "numba_barrier_is_left_out_behind_the_left_edge",
    "numba_keys_begin_at_the_last_query_of_the_tile",
    "numba_slope_of_the_cap_is_missing",
    "numba_scale_zero_is_taken_for_the_default",
    "numba_shared_memory_is_passed_in_elements",
    "numba_lse_is_the_row_sum",
    "numba_rows_behind_the_last_are_read",
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
