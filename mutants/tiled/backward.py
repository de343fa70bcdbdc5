"""Bugs of the backward: delta, the scale, sums over tiles and heads, dbias, subsets of inputs:
docs/why/bugs.md#backward.
"""

import torch

from flash_attest.mutants.tiled.build import planted

DELTA = "delta = (dout.float() * out.float()).sum(-1, keepdim=True)"
DS = "ds = p * (dp - delta_i)"
DQ = "dq = (dq * scale).to(q.dtype)"
DV = "dvj += as_operand(p, q).mT @ doi"
DK = "dkj = dkj * scale"
SUM_HEADS = "x.unflatten(1, (nheads_k, -1)).sum(2)"
DBIAS = "tile += ds.sum_to_size(tile.shape)"
# The sequences are longer than those that the oracle computes whole, so only the laws about sums
# catch the bug.
LONG = "256"

MUTANTS = [
    planted(
        name="delta_is_omitted",
        law="test_gradients_match_the_definition",
        edits=((DS, "ds = p * dp"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="dS = P dP",
    ),
    planted(
        name="delta_sums_64_columns",
        law="test_equal_values_give_no_score_gradient",
        edits=((DELTA, "delta = (dout.float() * out.float())[..., :64].sum(-1, keepdim=True)"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=65),
        story="the row sum stops at the columns of one load",
    ),
    planted(
        name="delta_is_that_of_the_first_tile",
        law="test_equal_values_give_no_score_gradient",
        edits=(("load_tile(delta.transpose(1, 2), i0, BLOCK_M)", "load_tile(delta.transpose(1, 2), 0, BLOCK_M)"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=17, seqlen_k=17, headdim=1),
        story="delta's pointer does not advance with the query tile",
    ),
    planted(
        name="delta_has_an_epsilon",
        law="test_no_dout_gives_no_gradient",
        edits=((DELTA, DELTA + " + 1e-7"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="a gradient where dout is 0, too small for any tolerance",
    ),
    planted(
        name="dq_is_kept_in_fixed_point",
        law="test_gradients_scale_with_dout",
        edits=((DQ, "dq = ((dq * scale * 2**28).round() / 2**28).to(q.dtype)"),),
        smallest=dict(batch=1, nheads=3, seqlen_q=2, seqlen_k=2),
        story="integer atomics for repeatable sums: small values lose bits, within every budget",
    ),
    planted(
        name="dq_is_not_scaled",
        law="test_gradients_match_the_definition",
        edits=((DQ, "dq = dq.to(q.dtype)"),),
        smallest=dict(batch=1, nheads=2, seqlen_q=2, seqlen_k=2),
        story="softmax_scale is missing from dq",
    ),
    planted(
        name="dq_keeps_the_last_key_tile_only",
        law="test_gradients_match_the_definition",
        edits=(("] += tile[:, :, :rows]", "] = tile[:, :, :rows]"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=17, seqlen_k=17, headdim=1),
        story="a store instead of an atomic add",
    ),
    planted(
        name="dk_is_not_scaled",
        law="test_q_dq_equals_k_dk",
        edits=((DK, "dkj = dkj * 1.0"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=2),
        story="softmax_scale is missing from dk",
    ),
    planted(
        name="dk_of_late_keys_is_not_stored",
        law="test_gradients_of_keys_sum_to_zero",
        edits=(
            (
                "        store_tile(dk.transpose(1, 2), j0, sum_query_heads(dkj, nheads_k))",
                f"        if j0 < {LONG}:\n"
                "            store_tile(dk.transpose(1, 2), j0, sum_query_heads(dkj, nheads_k))",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=257, seqlen_k=257, headdim=1),
        story="an offset overflows at lengths beyond those that the oracle computes whole",
    ),
    planted(
        name="dv_of_late_queries_is_left_out",
        law="test_v_dv_equals_out_dout",
        edits=((DV, f"dvj += as_operand(p, q).mT @ doi * (i0 < {LONG})"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=257, seqlen_k=257, headdim=1),
        story="an offset overflows at lengths beyond those that the oracle computes whole",
    ),
    planted(
        name="dv_uses_the_row_of_dout_before",
        law="test_gradients_match_the_definition",
        edits=((DV, "dvj += as_operand(p, q).mT @ doi.roll(1, 2)"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="dV with dout's wrong row",
    ),
    planted(
        name="ds_is_rounded_to_half",
        law="test_gradients_match_the_definition",
        edits=(
            (
                "add_tile(dq.transpose(1, 2), i0, as_operand(dr, q) @ kj)",
                "add_tile(dq.transpose(1, 2), i0, dr.half().float() @ kj)",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=1),
        story="dS is rounded to float16 for every input dtype",
    ),
    planted(
        name="padded_half_tile_overflows",
        law="test_ragged_sizes_match_the_definition",
        edits=(
            (
                "            p = torch.exp(s - lse_i)",
                "            s = s.masked_fill(torch.arange(BLOCK_N) >= seqlen_k - j0, 0.0)\n"
                "            p = torch.exp(s - lse_i)",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1, regime="shifted_down"),
        story="padding keys score 0: exp(0 - lse) overflows where lse < -88.7, and inf * 0 is NaN in dq; forward right",
    ),
    planted(
        name="backward_uses_the_default_scale",
        law="test_gradients_match_the_definition",
        edits=(
            (
                "k.shape[1:3]\n    scale = headdim**-0.5 if softmax_scale is None else softmax_scale",
                "k.shape[1:3]\n    scale = headdim**-0.5",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="softmax_scale is not saved for the backward",
    ),
    planted(
        name="lse_is_that_of_batch_0",
        law="test_order_of_batches_and_heads_does_not_matter",
        edits=(
            (
                "lse = lse.masked_fill(dead, INF).unsqueeze(-1)",
                "lse = lse.masked_fill(dead, INF).unsqueeze(-1)[:1].expand(batch, -1, -1, -1)",
            ),
        ),
        smallest=dict(batch=3, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="a block offset is missing in lse; a single batch hides it",
    ),
    planted(
        name="gqa_takes_the_head_modulo",
        law="test_out_matches_the_definition",
        edits=(
            (
                "return torch.arange(q.shape[2], device=q.device) // max(group, 1)",
                "return torch.arange(q.shape[2], device=q.device) % max(k.shape[2], 1)",
            ),
        ),
        smallest=dict(batch=1, nheads=6, seqlen_q=1, seqlen_k=1, headdim=1),
        story="query head h reads key head h % nheads_k; a single key head hides it",
    ),
    planted(
        name="gqa_sums_the_wrong_heads",
        law="test_gradients_match_the_definition",
        edits=((SUM_HEADS, "x.unflatten(1, (-1, nheads_k)).sum(1)"),),
        smallest=dict(batch=1, nheads=6, seqlen_q=1, seqlen_k=1, headdim=1),
        story="dk and dv are summed over heads h % nheads_k; a single key head hides it",
    ),
    planted(
        name="gqa_keeps_the_last_query_head",
        law="test_gradients_match_the_definition",
        edits=((SUM_HEADS, "x.unflatten(1, (nheads_k, -1))[:, :, -1]"),),
        smallest=dict(batch=1, nheads=2, seqlen_q=1, seqlen_k=1, headdim=1),
        story="each query head overwrites the dk and dv of the one before",
    ),
    planted(
        name="dbias_is_scaled",
        law="test_biased_attention_matches_the_definition",
        edits=(("    add_bias_tile(dbias, i0, j0, ds,", "    add_bias_tile(dbias, i0, j0, scale * ds,"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=2),
        story="dbias is taken after dS was scaled for dq",
    ),
    planted(
        name="dbias_is_not_summed_where_it_broadcasts",
        law="test_biased_attention_matches_the_definition",
        edits=((DBIAS, "tile += ds[: tile.shape[0], : tile.shape[1], : tile.shape[2]]"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=1),
        story="only the dS of the first batch, head or query is added",
    ),
    planted(
        name="dbias_keeps_the_last_query_tile",
        law="test_biased_attention_matches_the_definition",
        edits=((DBIAS, "tile.copy_(ds.sum_to_size(tile.shape))"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=17, seqlen_k=17, headdim=1, bias="vector"),
        story="a store instead of an atomic add: only a vector bias has several query tiles",
    ),
    planted(
        name="dbias_of_the_last_partial_tile_is_not_stored",
        law="test_rows_of_dbias_sum_to_zero",
        edits=(("if dbias is not None:", "if dbias is not None and (j0 == 0 or j0 + BLOCK_N <= seqlen_k):"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=17, seqlen_k=17, headdim=1),
        story="dbias is stored in whole tiles only",
    ),
    planted(
        name="probabilities_are_overwritten_by_backward",
        law="test_backward_may_run_twice_on_one_graph",
        impl="torch_math",
        edits=(
            (
                "softmax(-1).masked_fill(dead, 0.0)[..., :seqlen_k]\n",
                "softmax(-1).masked_fill(dead, 0.0)[..., :seqlen_k]\n"
                "    if s.requires_grad:\n"
                "        s.register_hook(lambda grad: (p.data.mul_(0.5), None)[1])\n",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=2),
        story="dS is written over P to save memory: right until a graph is retained for a second backward",
    ),
    planted(
        name="bias_gets_no_gradient_when_q_requires_none",
        law="test_any_subset_of_inputs_may_require_grad",
        impl="torch_math",
        edits=(("s = s + bias.float()", "s = s + (bias if q.requires_grad else bias.detach()).float()"),),
        smallest=dict(batch=3, nheads=3, seqlen_q=1, seqlen_k=1, headdim=1),
        story="only the bias requires grad, and the graph is not recorded",
    ),
    planted(
        name="dk_is_scaled_twice_when_q_requires_no_grad",
        law="test_any_subset_of_inputs_may_require_grad",
        impl="torch_math",
        edits=(
            (
                "    if bias is not None:\n        s = s",
                "    if not q.requires_grad:\n        s = s.detach() + scale * (s - s.detach())\n"
                "    if bias is not None:\n        s = s",
            ),
        ),
        smallest=dict(batch=1, nheads=3, seqlen_q=2, seqlen_k=2, headdim=2),
        story="the branch that skips dq leaves dk unfinished",
    ),
    planted(
        name="dout_in_bfloat16_goes_through_float16",
        law="test_gradients_scale_with_dout",
        edits=((DELTA, "dout = dout.half().to(q.dtype) if q.dtype == torch.bfloat16 else dout\n    " + DELTA),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, dtype=torch.bfloat16),
        story="one kernel for both half dtypes: dout beyond 65504 overflows, and loss scaling takes it there",
    ),
]
