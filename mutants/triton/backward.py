"""Bugs of the Triton kernels in the backward: both ways to sum dq, statistics, recomputed scores,
heads that share a key head, dbias.
"""

import torch

from flash_attest.mutants.triton.build import planted, supporting

KEYS = "diagonal, BLOCK_M, BLOCK_N, WINDOW, UNMASKED"
SCORES = """qk, bias_ptr, i, j, scale, softcap, bias_row, seqlen_q, seqlen_k, begin, diagonal,
            BIAS"""
DIFFERENTIATED = "return self.differentiate(p, dout, q, k, v, out, lse, bias, sinks, dlse, into, wants_dbias)"

MUTANTS = [
    planted(
        name="triton_contiguous_tensors_must_have_equal_strides",
        law="test_any_layout_equals_the_contiguous_one",
        source="attention.py",
        declares=supporting(strides=True),
        edits=(
            (
                DIFFERENTIATED,
                "if all(x.is_contiguous() for x in (q, k, v, dout)) and q.shape == k.shape:\n"
                f"            assert q.stride() == k.stride() == v.stride() == dout.stride()\n        {DIFFERENTIATED}",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1, layout="size_one"),
        story="all tensors are read by the strides of q, which is_contiguous() does not say anything about in a batch of one",
    ),
    planted(
        name="triton_padding_keys_overflow_in_dq",
        law="test_ragged_sizes_match_the_definition",
        source="backward.py",
        impl="triton_fa2_atomic",
        declares=supporting(),
        edits=(("clear = tl.where(j0 + BLOCK_N > seqlen_k, seqlen_q, clear)", "clear = clear + 0"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=31, seqlen_k=31, dtype=torch.float16, regime="shifted_down"),
        story="a padding key of a tile without a mask scores 0, and exp(0 - lse) overflows: NaN in dq, the rest is right",
    ),
    planted(
        name="triton_backward_takes_the_diagonal_tile_for_clear",
        law="test_gradients_match_the_definition",
        source="backward.py",
        declares=supporting(causal="optional"),
        edits=(("tl.maximum(j0 + BLOCK_N - 1 - diagonal, 0)", "tl.maximum(j0 - diagonal, 0)"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=32, seqlen_k=32, headdim=1, dtype=torch.float16, causal=True),
        story="the loop without a mask starts one tile early: dk and dv sum over queries that do not see the key",
    ),
    planted(
        name="triton_dk_goes_from_tile_to_tile_in_half",
        law="test_gradients_of_long_sums_match_the_definition",
        source="backward.py",
        declares=supporting(torch.bfloat16, cross=True),
        edits=(
            (
                "dk += product(ds_t, q, PRECISION)",
                "dk = (dk + product(ds_t, q, PRECISION)).to(q.dtype).to(tl.float32)",
            ),
        ),
        smallest=dict(batch=3, nheads=3, seqlen_q=4100, seqlen_k=8, headdim=64),
        story="dk is kept in the dtype of k from query tile to query tile: right in tests of a few hundred queries",
    ),
    planted(
        name="triton_first_query_tile_is_skipped",
        law="test_gradients_match_the_definition",
        source="backward.py",
        declares=supporting(causal="optional"),
        edits=(
            (
                "first = tl.maximum(j0 - diagonal, 0) // BLOCK_M * BLOCK_M",
                "first = tl.cdiv(tl.maximum(j0 - diagonal, 0), BLOCK_M) * BLOCK_M",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=33, seqlen_k=33, headdim=1, causal=True),
        story="the first query that sees a key tile is rounded up to a tile, not down",
    ),
    planted(
        name="triton_dq_ends_at_the_first_query_of_the_tile",
        law="test_gradients_match_the_definition",
        source="backward.py",
        declares=supporting(causal="optional"),
        edits=((KEYS, KEYS.replace("BLOCK_M", "1")),),
        smallest=dict(batch=1, nheads=1, seqlen_q=33, seqlen_k=33, headdim=1, causal=True),
        story="keys are bounded by the tile's first query: later keys of the diagonal add nothing to dq",
    ),
    planted(
        name="triton_dq_forgets_the_bias",
        law="test_biased_attention_matches_the_definition",
        source="backward.py",
        declares=supporting(bias={"vector"}),
        edits=((SCORES, SCORES.replace("BIAS", "False")),),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=1),
        story="P is recomputed without the bias in one of the kernels",
    ),
    planted(
        name="triton_bias_is_that_of_the_key_head",
        law="test_biased_attention_matches_the_definition",
        source="backward.py",
        declares=supporting(bias={"vector"}, gqa=True),
        edits=(
            (
                "bias_h = matrix_of(bias_ptr, bias_strides, b, h, 1)",
                "bias_h = matrix_of(bias_ptr, bias_strides, b, h_k, 1)",
            ),
        ),
        smallest=dict(batch=1, nheads=2, nheads_k=1, seqlen_q=1, seqlen_k=2, headdim=1),
        story="dk and dv of a group use the bias of its first query heads",
    ),
    planted(
        name="triton_dq_of_a_group_goes_to_the_key_head",
        law="test_gradients_match_the_definition",
        source="backward.py",
        impl="triton_fa2_atomic",
        declares=supporting(gqa=True),
        edits=(
            (
                "dq_h = matrix_of(dq_ptr, dq_strides, b_q, h, ALIGN)",
                "dq_h = matrix_of(dq_ptr, dq_strides, b_q, h_k, ALIGN)",
            ),
        ),
        smallest=dict(batch=1, nheads=2, nheads_k=1, seqlen_q=2, seqlen_k=2, headdim=1),
        story="a pointer is moved outside the loop over query heads: all of a group add to one dq",
    ),
    planted(
        name="triton_dq_of_every_batch_is_that_of_the_first",
        law="test_what_memory_held_before_does_not_matter",
        source="backward.py",
        declares=supporting(),
        edits=(
            (
                "dq_ptr = matrix_of(dq_ptr, dq_strides, b_q, h, ALIGN)",
                "dq_ptr = matrix_of(dq_ptr, dq_strides, 0, h, ALIGN)",
            ),
        ),
        smallest=dict(batch=2, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="a block offset is missing in dq; a single batch hides it",
    ),
    planted(
        name="triton_delta_is_that_of_the_first_tile",
        law="test_equal_values_give_no_score_gradient",
        source="backward.py",
        declares=supporting(cross=True),
        edits=(
            (
                "load_statistic(delta_ptr + statistics, i, seqlen_q, 0.0)",
                "load_statistic(delta_ptr + statistics, i - i0, seqlen_q, 0.0)",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=65, seqlen_k=1, headdim=1),
        story="delta's pointer does not move with the query tile",
    ),
    planted(
        name="triton_statistics_of_a_group_are_those_of_a_key_head",
        law="test_gradients_match_the_definition",
        source="backward.py",
        declares=supporting(gqa=True),
        edits=(("statistics_of(b * nheads_k * group + h, h,", "statistics_of(b * nheads_k + h, h,"),),
        smallest=dict(batch=2, seqlen_q=1, seqlen_k=1, headdim=1),
        story="lse and delta are indexed as if there were nheads_k of them; a single batch hides it",
    ),
    planted(
        name="triton_dead_rows_keep_their_lse",
        law="test_rows_without_keys_leave_the_others_alone",
        source="tiles.py",
        declares=supporting(causal="optional", cross=True),
        edits=(("return tl.where(lse == -INF, INF, lse * LOG2E)", "return lse * LOG2E"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=1),
        story="exp(-inf - -inf) is NaN, in dk and dv of every key",
    ),
    planted(
        name="triton_gqa_sums_one_query_head",
        law="test_gradients_match_the_definition",
        source="backward.py",
        declares=supporting(gqa=True),
        edits=(("range(h_k * group, (h_k + 1) * group)", "range(h_k * group, h_k * group + 1)"),),
        smallest=dict(batch=1, nheads=2, nheads_k=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="dk and dv are those of the group's first query head",
    ),
    planted(
        name="triton_dbias_is_that_of_the_first_batch",
        law="test_biased_attention_matches_the_definition",
        source="bias_gradient.py",
        declares=supporting(bias={"matrix"}, bias_grad=True),
        edits=(("for b in range(b0, b0 + shared_batch):", "for b in range(b0, b0 + 1):"),),
        smallest=dict(batch=2, nheads=1, seqlen_q=2, seqlen_k=2, headdim=1, bias="matrix"),
        story="dbias is not summed over the batch that shares the bias",
    ),
    planted(
        name="triton_dbias_sums_two_batches_at_most",
        law="test_biased_attention_matches_the_definition",
        source="bias_gradient.py",
        declares=supporting(bias={"matrix"}, bias_grad=True),
        edits=(("for b in range(b0, b0 + shared_batch):", "for b in range(b0, b0 + tl.minimum(shared_batch, 2)):"),),
        smallest=dict(batch=3, nheads=1, seqlen_q=2, seqlen_k=2, headdim=1, bias="matrix"),
        story="a loop over the batches that share the bias is unrolled for two",
    ),
    planted(
        name="triton_dbias_of_a_vector_is_that_of_one_tile",
        law="test_biased_attention_matches_the_definition",
        source="bias_gradient.py",
        declares=supporting(bias={"vector"}, bias_grad=True, cross=True),
        edits=(("total += p *", "total = p *"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=65, seqlen_k=2, headdim=1),
        story="the sum restarts with each query tile",
    ),
    planted(
        name="triton_dout_is_read_with_the_strides_of_out",
        law="test_any_layout_equals_the_contiguous_one",
        source="attention.py",
        declares=supporting(strides=True),
        edits=(
            (
                "out_strides=strides_of(out), dout_strides=strides_of(dout), nheads",
                "out_strides=strides_of(out), dout_strides=strides_of(out), nheads",
            ),
        ),
        smallest=dict(batch=1, nheads=2, seqlen_q=2, seqlen_k=2, headdim=2),
        story="out is contiguous, but dout, which comes from the model, is not",
    ),
    planted(
        name="triton_dq_keeps_the_last_key_tile_only",
        law="test_gradients_match_the_definition",
        source="backward.py",
        impl="triton_fa2_atomic",
        declares=supporting(cross=True),
        edits=(
            (
                'tl.atomic_add(dq_ptr + offsets, dq, mask=(rows < seqlen_q) & (columns < headdim), sem="relaxed")',
                "tl.store(dq_ptr + offsets, dq, mask=(rows < seqlen_q) & (columns < headdim))",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=33, headdim=1),
        story="a store instead of an atomic add",
    ),
]
