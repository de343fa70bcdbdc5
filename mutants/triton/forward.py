"""Bugs of the Triton kernels that show in the forward: masks, tiles, strides, the running maximum,
the scale.
"""

import torch

from flash_attest.mutants.triton.build import planted, supporting

TAIL = "(j < seqlen_k) & (j <= i + diagonal)"
CLEAR = "clear = tl.maximum(tl.minimum(seqlen_k, i0 + diagonal + 1), 0)"
ALIGNED = "diagonals(sizes, causal, window, alignment)"
BIAS_STRIDES = "batch, head, row = _strides(bias)\n    return Strides.packed(batch,"
UNIT_STRIDE = "        q, k, v = (unit_stride(x) for x in (q, k, v))\n"
NEGATIVE = "q = tl.where(scale < 0, -q, q)"

MUTANTS = [
    planted(
        name="triton_tail_mask_is_left_to_the_causal_mask",
        law="test_padding_keys_count_nothing",
        source="tiles.py",
        declares=supporting(backward=False),
        edits=((TAIL, "j <= i + diagonal"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="keys beyond the last are hidden by the causal mask only, if there is one",
    ),
    planted(
        name="triton_last_key_tile_is_dropped",
        law="test_padding_keys_count_nothing",
        source="tiles.py",
        declares=supporting(backward=False),
        edits=(
            (
                "last = tl.maximum(tl.minimum(seqlen_k, i0 + diagonal + BLOCK_M), 0)",
                "last = tl.maximum(tl.minimum(seqlen_k // BLOCK_N * BLOCK_N, i0 + diagonal + BLOCK_M), 0)",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="the number of key tiles is rounded down",
    ),
    planted(
        name="triton_diagonal_tile_is_taken_for_clear",
        law="test_query_sees_exactly_its_prefix",
        source="tiles.py",
        declares=supporting(backward=False, causal="optional"),
        edits=((CLEAR, CLEAR.replace("+ 1)", "+ BLOCK_N)")),),
        smallest=dict(batch=1, nheads=1, seqlen_q=32, seqlen_k=32, headdim=1, dtype=torch.float16),
        story="the loop without a mask runs one tile too far",
    ),
    planted(
        name="triton_causal_aligns_top_left",
        law="test_alignment_is_as_declared",
        source="problem.py",
        declares=supporting(backward=False, causal="optional", cross=True),
        edits=((ALIGNED, ALIGNED.replace("alignment", '"top_left"')),),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=1),
        story="the alignment of FlashAttention before 2.1",
    ),
    planted(
        name="triton_columns_behind_the_row_are_read",
        law="test_memory_around_inputs_is_not_read",
        source="tiles.py",
        declares=supporting(backward=False, strides=True),
        edits=(("mask = mask & (rows < seqlen)", "mask = rows < seqlen"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="the head dim is padded to a power of two, and its mask is missing when the last tile is loaded",
    ),
    planted(
        name="triton_columns_after_the_last_multiple_of_32_are_not_written",
        law="test_what_memory_held_before_does_not_matter",
        source="tiles.py",
        declares=supporting(backward=False),
        edits=(
            (
                "mask = (rows < seqlen) & (columns < headdim // ALIGN * ALIGN)",
                "mask = (rows < seqlen) & (columns < tl.where(headdim < 32, headdim, headdim // 32 * 32))",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=33),
        story="the tail columns of a head dim like 72 or 104 stay as torch.empty made them",
    ),
    planted(
        name="triton_bias_batch_moves_by_the_stride_of_a_head",
        law="test_bias_picks_its_key",
        source="problem.py",
        declares=supporting(backward=False, bias={"vector"}),
        edits=((BIAS_STRIDES, BIAS_STRIDES.replace("packed(batch", "packed(head")),),
        smallest=dict(batch=2, nheads=1, seqlen_q=2, seqlen_k=2, headdim=1),
        story="the stride of the wrong dimension: with one head in the bias, every batch gets the first one's bias",
    ),
    planted(
        name="triton_accumulator_is_not_rescaled",
        law="test_out_matches_the_definition",
        source="forward.py",
        declares=supporting(backward=False, cross=True),
        edits=(("acc = acc * alpha[:, None] +", "acc = acc +"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=48, headdim=1),
        story="alpha is missing from O: harmless as long as the first tile has the row maximum",
    ),
    planted(
        name="triton_row_sum_is_not_rescaled",
        law="test_lse_matches_the_definition",
        source="forward.py",
        declares=supporting(backward=False, cross=True),
        edits=(("l = alpha * l + tl.sum(p, 1)", "l = l + tl.sum(p, 1)"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=48, headdim=1),
        story="alpha is missing from l",
    ),
    planted(
        name="triton_row_maximum_of_hidden_keys_is_subtracted",
        law="test_infinite_bias_hides_exactly_its_keys",
        source="forward.py",
        declares=supporting(backward=False, bias={"vector"}, cross=True),
        edits=(("m_safe = tl.where(m_new == -INF, 0.0, m_new)", "m_safe = m_new"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=48, headdim=1),
        story="-inf - -inf is NaN if the first tile of a row is hidden",
    ),
    planted(
        name="triton_dead_rows_divide_by_zero",
        law="test_no_keys_give_zero",
        source="forward.py",
        declares=supporting(backward=False, cross=True),
        edits=(("acc / tl.where(dead, 1.0, l)[:, None]", "acc / l[:, None]"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, headdim=1),
        story="0 / 0 in a row that sees no key",
    ),
    planted(
        name="triton_negative_scale_stays_out_of_the_queries",
        law="test_negative_scale_is_negated_q",
        source="forward.py",
        declares=supporting(backward=False, softmax_scale=True),
        edits=((NEGATIVE + "  #", "#"), ("scale = tl.abs(scale)", "scale = scale")),
        smallest=dict(batch=1, nheads=1, seqlen_q=32, seqlen_k=32, dtype=torch.float16),
        story="scale * max(q k) is the minimum when the scale is negative: in the loop without a mask only",
    ),
    planted(
        name="triton_scale_zero_is_taken_for_the_default",
        law="test_scale_zero_is_q_zero",
        source="problem.py",
        declares=supporting(backward=False, softmax_scale=True),
        edits=(
            (
                "scale = sizes.headdim**-0.5 if softmax_scale is None else float(softmax_scale)",
                "scale = float(softmax_scale or sizes.headdim**-0.5)",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="`softmax_scale or default`",
    ),
    planted(
        name="triton_lse_is_in_base_2",
        law="test_contract_is_kept",
        source="forward.py",
        declares=supporting(backward=False),
        edits=(("(m + tl.log2(tl.where(dead, 1.0, l))) * LN2", "m + tl.log2(tl.where(dead, 1.0, l))"),),
        smallest={},
        story="the kernel works with exp2 and returns its own lse",
    ),
    planted(
        name="triton_gqa_reads_keys_of_head_modulo",
        law="test_out_matches_the_definition",
        source="forward.py",
        declares=supporting(backward=False, gqa=True),
        edits=(
            (
                "k_ptr = matrix_of(k_ptr, k_strides, b_k, h // group, ALIGN)",
                "k_ptr = matrix_of(k_ptr, k_strides, b_k, h % (nheads // group), ALIGN)",
            ),
        ),
        smallest=dict(batch=1, nheads=6, seqlen_q=2, seqlen_k=2, headdim=1),
        story="query head h reads key head h % nheads_k but the right head of v; a single key head hides it",
    ),
    planted(
        name="triton_last_stride_is_taken_for_1",
        law="test_any_layout_equals_the_contiguous_one",
        source="attention.py",
        declares=supporting(backward=False, strides=True),
        edits=((UNIT_STRIDE, ""),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=2, headdim=2, layout="last_strided"),
        story="columns are assumed to be adjacent, ignoring the last stride",
    ),
    planted(
        name="triton_address_of_the_first_row_is_not_checked",
        law="test_any_layout_equals_the_contiguous_one",
        source="problem.py",
        declares=supporting(backward=False, strides=True),
        edits=((" and x.data_ptr() % 16 == 0", ""),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=2, headdim=8, layout="offset"),
        story="the compiler is told that addresses are multiples of 16 bytes, and only strides were checked",
    ),
    planted(
        name="triton_maximum_is_that_of_all_rows_of_a_tile",
        law="test_huge_scores_match_the_definition",
        source="forward.py",
        declares=supporting(backward=False),
        edits=(
            ("m_new = tl.maximum(m, tl.max(s, 1))", "m_new = tl.maximum(m, tl.max(tl.max(s, 1), 0))"),
            ("m_new = tl.maximum(m, tl.max(qk, 1)", "m_new = tl.maximum(m, tl.max(tl.max(qk, 1), 0)"),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=1),
        story="one maximum for each tile saves a reduction: rows far below the largest underflow",
    ),
    planted(
        name="triton_float32_products_are_rounded_to_tf32",
        law="test_lse_matches_the_definition",
        source="problem.py",
        declares=supporting(torch.float32, backward=False),
        edits=(('PRECISION="tf32" if self.tf32 else "ieee"', 'PRECISION="tf32"'),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1, dtype=torch.float32),
        story="float32 products on matrix units, with 10 bits, not declared",
    ),
]
