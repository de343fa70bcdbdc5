"""Bugs of the online softmax, of lse, of the scale, and of precision:
docs/why/bugs.md#softmax-and-lse.
"""

import torch

from flash_attest.mutants.tiled.build import planted
from flash_attest.mutants.tiled.masks import START, starting_at

MAXIMUM = "torch.maximum(m, s.amax(-1, keepdim=True))"
ACC = "acc = alpha * acc + as_operand(p, q) @ vj"
OF_VALUES = "vj = load_tile(v.transpose(1, 2), j0, BLOCK_N)[:, kv_head]\n            s, _ = "
LSE = "lse_i = m + torch.log(l)"
DEFAULT = "headdim**-0.5 if softmax_scale is None else softmax_scale"
SCALE_FORWARD, SCALE_BACKWARD = "k.shape[1]\n    scale = " + DEFAULT, "k.shape[1:3]\n    scale = " + DEFAULT


def _scale(new: str) -> tuple[tuple[str, str], ...]:
    """Return edits that replace the scale by another expression, in forward and backward."""
    return tuple((old, old.replace(DEFAULT, new)) for old in (SCALE_FORWARD, SCALE_BACKWARD))


MUTANTS = [
    planted(
        name="last_tile_is_not_rescaled",
        law="test_out_matches_the_definition",
        edits=((ACC, ACC.replace("alpha *", "(alpha if j0 + BLOCK_N < seqlen_k else 1.0) *")),),
        smallest=dict(batch=3, nheads=3, seqlen_q=40, seqlen_k=40, headdim=2),
        story="the peeled last iteration omits O = alpha O",
    ),
    planted(
        name="row_sum_is_not_rescaled",
        law="test_split_keys_merge_by_lse",
        edits=(("l = alpha * l + p.sum", "l = l + p.sum"),),
        smallest=dict(batch=3, nheads=3, seqlen_q=40, seqlen_k=40, headdim=2),
        story="alpha is applied to O but not to l",
    ),
    planted(
        name="row_maximum_starts_at_ten_thousand_below",
        law="test_finite_masks_hide_as_infinity_does",
        edits=(
            (
                START,
                starting_at("-1e4"),
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=2),
        story="-1e4 in place of -inf: a row whose keys are all masked by a lower number counts as dead",
    ),
    planted(
        name="row_maximum_starts_at_zero",
        law="test_huge_scores_match_the_definition",
        edits=((START, starting_at("0.0")),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1, regime="shifted_down"),
        story="rows whose scores are all very negative underflow",
    ),
    planted(
        name="row_maximum_is_that_of_all_batches",
        law="test_neighbours_change_no_bit",
        edits=((MAXIMUM, MAXIMUM.replace("s.amax(-1,", "s.amax((0, -1),")),),
        smallest=dict(batch=2, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="one maximum serves all batches: right within rounding, until another batch has larger scores or NaN",
    ),
    planted(
        name="row_maximum_is_that_of_the_first_tile",
        law="test_order_of_keys_does_not_matter",
        edits=((f"m_new = {MAXIMUM}", f"m_new = {MAXIMUM} if j0 == 0 else m"),),
        smallest=dict(batch=3, nheads=3, seqlen_q=130, seqlen_k=130, headdim=65),
        story="right until a later key scores far above: then P overflows",
    ),
    planted(
        name="maximum_is_not_subtracted",
        law="test_huge_scores_match_the_definition",
        edits=((f"m_new = {MAXIMUM}", "m_new = torch.zeros_like(m)"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1, regime="shifted_up"),
        story="exp(S) by itself overflows at 88",
    ),
    planted(
        name="maximum_is_taken_before_a_negative_scale",
        law="test_negative_scale_is_negated_q",
        edits=(
            (
                MAXIMUM,
                "torch.maximum(m, s.amax(-1, keepdim=True) if scale >= 0 else "
                "-(-s).masked_fill(s == -INF, -INF).amax(-1, keepdim=True))",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=40, seqlen_k=40, headdim=1),  # few keys rarely differ by 88
        story="scale * max(q k) is the minimum when the scale is negative",
    ),
    planted(
        name="row_maximum_is_rounded_to_half",
        law="test_single_key_is_copied",
        edits=((MAXIMUM, "torch.maximum(m, s.amax(-1, keepdim=True).half().float())"),),
        smallest=dict(batch=1, nheads=3, seqlen_q=8, seqlen_k=1),
        story="harmless in exact arithmetic; but P of the only key is no longer 1, and P v / P no longer v",
    ),
    planted(
        name="denominator_has_an_epsilon",
        law="test_row_that_sees_one_key_copies_it",
        edits=(("torch.where(l == 0, 0.0, acc / l)", "torch.where(l == 0, 0.0, acc / (l + 1e-6))"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1, dtype=torch.float32),
        story="an epsilon against division by zero",
    ),
    planted(
        name="scores_are_clamped",
        law="test_shifting_all_scores_changes_only_lse",
        edits=(("s = scale * (qi @ kj.mT)", "s = (scale * (qi @ kj.mT)).clamp(-10.0, 10.0)"),),
        smallest=dict(batch=3, nheads=3, seqlen_q=8, seqlen_k=8, headdim=65),
        story="a clamp against overflow instead of the maximum",
    ),
    planted(
        name="exponential_has_a_short_constant",
        law="test_out_matches_the_definition",
        edits=(("p = torch.exp(s - m_safe)", "p = torch.exp2((s - m_safe) * 1.44)"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=1),
        story="exp2 with log2(e) typed in by hand",
    ),
    planted(
        name="out_is_kept_in_fixed_point",
        law="test_out_scales_with_v",
        edits=(("torch.where(l == 0, 0.0, acc / l)", "torch.where(l == 0, 0.0, (acc / l * 2**25).round() / 2**25)"),),
        smallest=dict(batch=1, nheads=3, seqlen_q=8, seqlen_k=8, headdim=3, dtype=torch.float32),
        story="integer atomics for repeatable sums: small values lose bits, within every budget",
    ),
    planted(
        name="values_saturate",
        law="test_out_is_additive_in_v",
        edits=(
            (
                "            vj = load_tile(v.transpose(1, 2), j0, BLOCK_N)",
                "            vj = load_tile(v.transpose(1, 2), j0, BLOCK_N).clamp(-4.5, 4.5)",
            ),
        ),
        smallest=dict(batch=1, nheads=3, seqlen_q=4, seqlen_k=4, headdim=8),
        story="a saturating cast of v to a narrow format, which random numbers rarely reach",
    ),
    planted(
        name="accumulator_is_rounded_to_half",
        law="test_out_matches_the_definition",
        edits=((ACC, "acc = as_operand(alpha * acc + as_operand(p, q) @ vj, q)"),),
        smallest=dict(batch=3, nheads=6),
        story="O is kept in the inputs' dtype, but float32 is declared",
    ),
    planted(
        name="probabilities_have_four_bits",
        law="test_out_matches_the_definition",
        edits=((ACC, ACC.replace("as_operand(p, q)", "p.to(torch.float8_e4m3fn).float()")),),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=1),
        story="P in float8, not declared",
    ),
    planted(
        name="out_is_truncated_to_bfloat16",
        law="test_out_matches_the_definition",
        edits=(
            (
                "store_tile(out.transpose(1, 2), i0, oi)",
                "oi = (oi.view(torch.int32) & -65536).view(torch.float32) if q.dtype == torch.bfloat16 else oi\n"
                "        store_tile(out.transpose(1, 2), i0, oi)",
            ),
        ),
        smallest=dict(dtype=torch.bfloat16),
        story="the last cast truncates instead of rounding: within twice the rounding error, but always towards 0",
    ),
    planted(
        name="tf32_is_not_declared",
        law="test_lse_matches_the_definition",
        edits=(
            (
                "s = scale * (qi @ kj.mT)",
                "s = scale * ((qi.view(torch.int32) & -8192).view(torch.float32) @ kj.mT)",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1, dtype=torch.float32),
        story="float32 products on tensor cores, with 10 bits",
    ),
    planted(
        name="lse_is_off_by_ln_2",
        law="test_lse_matches_the_definition",
        edits=((LSE, "lse_i = m + torch.log(2 * l)"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="a factor of 2 in the row sum",
    ),
    planted(
        name="lse_is_of_unscaled_scores",
        law="test_lse_matches_the_definition",
        edits=((LSE, "lse_i = m / scale + torch.log(l)"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=2),
        story="m is stored before it is scaled",
    ),
    planted(
        name="lse_forgets_the_maximum",
        law="test_lse_matches_the_definition",
        edits=((LSE, "lse_i = torch.log(l)"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="log l is stored instead of m + log l",
    ),
    planted(
        name="lse_is_stored_in_half",
        law="test_lse_matches_the_definition",
        edits=((LSE, "lse_i = (m + torch.log(l)).half().float()"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="lse goes through the inputs' dtype",
    ),
    planted(
        name="scale_zero_is_taken_for_the_default",
        law="test_scale_zero_is_q_zero",
        edits=_scale("softmax_scale or headdim**-0.5"),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="`softmax_scale or default`",
    ),
    planted(
        name="scale_has_a_floor",
        law="test_tiny_scores_match_the_definition",
        edits=_scale("headdim**-0.5 if softmax_scale is None else max(softmax_scale, 1e-2, key=abs)"),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="a guard against division by a scale of 0",
    ),
    planted(
        name="scale_is_that_of_the_padded_headdim",
        law="test_lse_matches_the_definition",
        edits=_scale("(-(-headdim // 8) * 8) ** -0.5 if softmax_scale is None else softmax_scale"),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="the default is computed after the head dim was padded to a multiple of 8",
    ),
    planted(
        name="scale_equal_to_the_default_is_not_applied",
        law="test_default_scale_may_be_given",
        edits=((SCALE_FORWARD, SCALE_FORWARD + " if abs(softmax_scale - headdim**-0.5) > 1e-9 else 1.0"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=2),
        story="q has been scaled already if the scale is the default: only the caller that names it gets no scale",
    ),
    planted(
        name="scale_is_taken_from_a_table",
        law="test_default_scale_may_be_given",
        edits=(
            (
                SCALE_FORWARD,
                SCALE_FORWARD + "\n    if softmax_scale is not None:\n"
                "        scale = next((d**-0.5 for d in (32, 64, 96, 128) if abs(d**-0.5 - scale) < 0.004), scale)",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=31),
        story="a given scale selects one of four compiled ones, the nearest: a head dim next to them gets theirs",
    ),
    planted(
        name="scale_is_that_of_the_first_call",
        law="test_powers_of_four_move_between_q_and_scale",
        edits=(
            ('INF = float("inf")\n', 'INF = float("inf")\nCOMPILED = {}\n'),
            (
                SCALE_FORWARD,
                "k.shape[1]\n    scale = COMPILED.setdefault(q.shape, " + DEFAULT + ")",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="the scale is compiled in as a constant but is missing from the cache's key",
    ),
    planted(
        name="values_are_clamped_at_448",
        law="test_out_scales_with_v",
        edits=((OF_VALUES, OF_VALUES.replace("[:, kv_head]", "[:, kv_head].clamp(-448, 448)")),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="the largest number of e4m3, from a path for fp8, stays in all of them",
    ),
]
