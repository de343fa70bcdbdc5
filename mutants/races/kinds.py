"""Every planted race by its kind: the races of mutants/races and of the families' own files."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from flash_attest.mutants.mutant import Mutant


class Kind(Enum):
    """The parties of a race, or the reason why it shows rarely; `words` explains each."""

    WITHIN_A_WARP = "within a warp", "lanes of one warp, which mostly run in step, without `__syncwarp` between them"
    BETWEEN_WARPS = "between warps", "warps of a block that read what others write to shared memory, without a barrier"
    ACROSS_TILES = "across tiles", "write after read: the next tile is loaded while another warp reads this one"
    BETWEEN_BLOCKS = "between blocks", "blocks of one launch that write to the same place in global memory"
    GLOBAL_SCRATCH = "global scratch", "threads of a block that pass values through global memory without a barrier"
    DROPPED_ATOMICS = "dropped atomics", "load, add and store where an atomic add belongs"
    ASYNC_COPY = "asynchronous copies", "`cp.async` that is not waited for, or waited for by the wrong threads"
    SECOND_STREAM = "second stream", "work on another stream that is not waited for"
    BLOCKS_AN_SM = "several blocks an SM", "scratch for each multiprocessor: right while one block at a time runs on it"

    def __new__(cls, name: str, words: str):
        kind = object.__new__(cls)
        kind._value_, kind.words = name, words
        return kind


class Planted(NamedTuple):
    """A mutant in the matrix. If kind is None, nothing is edited, so anything found there is a
    false alarm.
    """

    mutant: Mutant
    kind: Kind | None


NAMES = {
    Kind.WITHIN_A_WARP: """
        cuda_backward_barrier_2 cuda_backward_barrier_3 cuda_fa1_forward_barrier_2 cuda_fa2_forward_barrier_3
        cuda_fa1_statistics_are_written_by_all_lanes
        numba_backward_barrier_2 numba_backward_barrier_3 numba_fa1_barrier_2 numba_fa2_barrier_2""",
    Kind.BETWEEN_WARPS: """
        cuda_tiles_are_read_before_they_are_loaded cuda_scores_are_read_before_they_are_written
        cuda_probabilities_are_read_before_they_are_written cuda_last_factor_is_read_before_it_is_written
        cuda_last_factor_waits_for_its_warp_alone
        cuda_backward_barrier_1 cuda_backward_barrier_4 cuda_bias_gradient_barrier_1 cuda_bias_gradient_barrier_3
        cuda_fa1_forward_barrier_1 cuda_fa2_forward_barrier_1
        numba_backward_barrier_1 numba_backward_barrier_4 numba_bias_gradient_barrier_1 numba_bias_gradient_barrier_3
        numba_fa1_barrier_1 numba_fa2_barrier_1""",
    Kind.ACROSS_TILES: """
        cuda_next_tile_is_loaded_over_the_last cuda_backward_barrier_5 cuda_bias_gradient_barrier_2
        cuda_fa1_forward_barrier_3 cuda_fa2_forward_barrier_2 cuda_fa2_forward_barrier_4
        numba_backward_barrier_5 numba_bias_gradient_barrier_2 numba_fa1_barrier_3 numba_fa2_barrier_3""",
    Kind.BETWEEN_BLOCKS: """
        cuda_rows_behind_the_last_are_stored cuda_fa2_lse_is_written_by_every_piece
        cuda_backward_dk_behind_the_last_key_is_stored cuda_fa1_statistics_of_all_heads_share_their_scratch
        cuda_fa2_lse_behind_the_last_row_is_stored
        numba_rows_behind_the_last_are_stored numba_fa2_lse_behind_the_last_row_is_stored
        triton_compiled_lse_behind_the_last_row_is_stored""",
    Kind.GLOBAL_SCRATCH: """
        cuda_fa2_row_sums_go_through_memory cuda_fa1_statistics_are_read_while_they_are_written
        numba_fa2_row_sums_go_through_memory
        triton_compiled_row_sums_go_through_memory triton_compiled_delta_goes_through_memory""",
    Kind.DROPPED_ATOMICS: """
        cuda_backward_splits_add_to_one_sum numba_splits_add_to_one_sum triton_compiled_dq_is_loaded_added_and_stored""",
    Kind.ASYNC_COPY: """
        cuda_fa2_copies_are_not_waited_for cuda_fa2_last_batch_of_copies_is_not_waited_for
        cuda_fa2_copies_are_waited_for_behind_the_barrier cuda_fa2_next_keys_are_copied_over_the_last
        numba_copies_are_not_waited_for""",
    Kind.SECOND_STREAM: """
        cuda_both_launches_on_the_legacy_stream cuda_backward_delta_is_not_waited_for
        cuda_backward_sums_are_added_before_they_are_there
        numba_launches_on_the_default_stream numba_backward_delta_is_not_waited_for
        numba_backward_sums_of_dq_are_not_waited_for
        triton_current_stream_does_not_wait_for_the_forward triton_delta_is_not_waited_for triton_dq_is_not_waited_for""",
    Kind.BLOCKS_AN_SM: """
        cuda_fa2_blocks_of_a_multiprocessor_share_their_scratch cuda_fa2_scratch_has_a_slot_for_each_multiprocessor
        numba_fa2_scratch_has_a_slot_for_each_multiprocessor
        triton_compiled_scratch_has_a_slot_for_each_multiprocessor""",
}  # fmt: skip


def planted(known: tuple[Mutant, ...]) -> dict[str, Planted]:
    """Return the races in NAMES among these mutants, by name, followed by each implementation that
    they edit, unedited.
    """
    by_name = {mutant.name: mutant for mutant in known}
    races = {name: Planted(by_name[name], kind) for kind, names in NAMES.items() for name in names.split()}
    most: dict[str, Mutant] = {}  # implementation: the mutant that supports most of its features
    for mutant, _ in races.values():
        most[mutant.impl] = max(most.get(mutant.impl, mutant), mutant, key=_declared)
    return races | {f"unedited_{impl}": Planted(replace(each, edits=()), None) for impl, each in most.items()}


def _declared(mutant: Mutant) -> tuple[bool, bool, int]:
    return mutant.device == "cpu", "backward" not in mutant.declares, len(str(mutant.declares))
