"""The planted bugs for which `tox` searches no failing case, because a search takes too long."""

from pathlib import Path

# Bugs whose smallest case is known: kept.txt has a line for each, "name: case", as `flash-attest
# power NAME` prints the case. Each law fails on one of these cases, or a search finds a bug of it.
# Some bugs of a law are left out.
#
# In `tox` the law judges only this case, except for kernels, which compile for seconds. `tox -e
# thorough` judges it for kernels too, draws cases again, shrinks, and checks the whole message.
# An empty case means that the bug is intermittent (a race), so cases are drawn, but not shrunk.
_LINES = Path(__file__).with_name("kept.txt").read_text(encoding="utf-8").splitlines()
KEPT = {name: case.strip() for name, _, case in (line.partition(":") for line in _LINES)}

# These are judged only in `tox -e thorough`: bugs of the Numba kernels that are also planted in
# other kernels, and barriers, which tests/emulator/numba/test_barriers.py removes from the PTX. A
# Numba kernel takes seconds to compile. Of the other families, bugs whose law finds others.
NIGHTLY = {
    "splits_follow_the_longest_sequence_of_the_batch",
    "keys_are_split_where_every_sequence_has_one_query",
    "dq_is_summed_in_any_order",
    "keys_wrap_around_at_65536",
    "cuda_backward_delta_is_that_of_the_first_head",
    "cuda_backward_dv_takes_another_row_of_dout",
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
