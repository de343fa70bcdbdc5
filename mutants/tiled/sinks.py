"""Bugs of sinks: their share, their head, dsink: docs/why/bugs.md#softmax-and-lse."""

from flash_attest.mutants.mutant import ONE
from flash_attest.mutants.tiled.build import planted
from flash_attest.mutants.tiled.masks import START

SINK = "dtype=torch.float32) if sinks is None else sinks"
MAXIMUM = "        m = sink[:, None, None].expand(batch, nheads, BLOCK_M, 1)"
ROW_SUM = "l = alpha * l + p.sum(-1, keepdim=True)"
OUT = "        oi = torch.where(l == 0, 0.0, acc / l)"
LSE = "lse_i = m + torch.log(l)"
P_SINK = "        p_sink = torch.exp(sinks[:, None, None] - lse)"
DSINK = "dsink = -(p_sink * delta.transpose(1, 2)).sum((0, 2, 3))"
DEAD = "    dead = lse == -INF\n"
KEY_TILES = "        for j0 in range(max(0, first_key)"
# Leaves the sink to the end of the loop over keys.
WITHOUT_SINK = (
    (MAXIMUM, "        m = qi.new_full((batch, nheads, BLOCK_M, 1), -INF)"),
    (START, "        l = qi.new_zeros(batch, nheads, BLOCK_M, 1)"),
)

MUTANTS = [
    planted(
        name="sink_is_dropped",
        law="test_sink_takes_its_share",
        edits=((SINK, SINK.replace("sinks is None else sinks", "True else sinks")),),
        smallest=ONE,
        story="sinks is taken and not passed to the kernel",
    ),
    planted(
        name="sink_joins_without_exp",
        law="test_sink_takes_its_share",
        edits=(*WITHOUT_SINK, (OUT, "        l = l if sinks is None else l + sink[:, None, None]\n" + OUT)),
        smallest=ONE,
        story="the row sum gets the sink itself, not exp(sink - m)",
    ),
    planted(
        name="sink_joins_once_for_each_key_tile",
        law="test_sink_takes_its_share",
        edits=((ROW_SUM, ROW_SUM + " + (j0 >= BLOCK_N) * torch.exp(sink[:, None, None] - m_safe)"),),
        smallest=ONE | dict(seqlen_k=17),
        story="each split of the keys starts with the sink, and the merge adds them up",
    ),
    planted(
        name="sink_is_that_of_the_key_head",
        law="test_sink_takes_its_share",
        edits=((SINK, SINK + "[kv_head]"),),
        smallest=ONE | dict(nheads=2, nheads_k=1),
        story="sinks are indexed by the key head, as k and v are; right without GQA",
    ),
    planted(
        name="sink_is_that_of_the_head_modulo_key_heads",
        law="test_sink_takes_its_share",
        edits=((SINK, SINK + "[torch.arange(nheads) % k.shape[2]]"),),
        smallest=ONE | dict(nheads=2, nheads_k=1),
        story="query heads that are packed into rows find their sink by h % nheads_k",
    ),
    planted(
        name="sink_is_scaled",
        law="test_sink_takes_its_share",
        edits=((SINK, SINK + " * scale"),),
        smallest=ONE | dict(nheads=2, nheads_k=2, headdim=2),
        story="the sink is put among the scores before softmax_scale",
    ),
    planted(
        name="sink_is_capped",
        law="test_out_matches_the_definition",
        edits=(
            (
                SINK,
                SINK
                + "\n    sink = sink if sinks is None or softcap is None else softcap * torch.tanh(sink / softcap)",
            ),
        ),
        smallest=ONE | dict(nheads=2, nheads_k=2),
        story="the sink is put among the scores before the softcap",
    ),
    planted(
        name="sink_that_is_off_gives_nan",
        law="test_out_matches_the_definition",
        edits=((START, "        l = torch.exp(m - m) if sinks is not None else (m > -INF).float()"),),
        smallest=ONE,
        story="l = exp(sink - m) with m = sink: NaN for a sink of -inf",
    ),
    planted(
        name="maximum_leaves_the_sink_out",
        law="test_high_sink_takes_all",
        edits=(
            *WITHOUT_SINK,
            (
                OUT,
                "        m = m.masked_fill(m == -INF, 0.0)\n        l = l + torch.exp(sink[:, None, None] - m)\n" + OUT,
            ),
        ),
        smallest=ONE,
        story="the sink joins at the end by exp(sink - m), which overflows where it is far above the scores",
    ),
    planted(
        name="lse_is_that_of_the_keys_alone",
        law="test_sink_takes_its_share",
        edits=((LSE, LSE.replace("l)", "l - torch.exp(sink[:, None, None] - m.clamp(min=-1e38)))")),),
        smallest=ONE,
        story="out is divided by the sum with the sink, lse is stored without it",
    ),
    planted(
        name="lse_of_a_tile_without_keys_lacks_the_sink",
        law="test_rows_without_keys_give_zero",
        edits=(
            (
                KEY_TILES,
                "        if min(seqlen_k, last_key) <= max(0, first_key):\n"
                "            lse[:, :, i0 : i0 + BLOCK_M] = -INF\n"
                "            continue\n" + KEY_TILES,
            ),
        ),
        smallest=ONE | dict(seqlen_q=17),
        story="the early exit of a block without keys stores -inf, as before there were sinks",
    ),
    planted(
        name="backward_recomputes_p_without_the_sink",
        law="test_gradients_match_the_definition",
        edits=(
            (
                DEAD,
                "    if sinks is not None:\n        lse = lse + torch.log1p(-torch.exp(sinks[:, None] - lse))\n" + DEAD,
            ),
        ),
        smallest=ONE,
        story="P sums to 1 over the keys alone in the backward, as its lse has no sink",
    ),
    planted(
        name="dsink_is_the_weight_of_the_sink",
        law="test_bias_and_sink_conserve",
        edits=((DSINK, "dsink = -p_sink.sum((0, 2, 3))"),),
        smallest=ONE,
        story="dsink = -sum P_sink, without delta",
    ),
    planted(
        name="dsink_has_the_sign_of_delta",
        law="test_bias_and_sink_conserve",
        edits=((DSINK, DSINK.replace("-(", "(")),),
        smallest=ONE,
        story="dsink = sum(P_sink delta): the minus of 0 - delta is lost",
    ),
    planted(
        name="dsink_is_that_of_the_first_batch",
        law="test_bias_and_sink_conserve",
        edits=((DSINK, DSINK.replace(".sum((0, 2, 3))", "[:1].sum((0, 2, 3))")),),
        smallest=ONE | dict(batch=2),
        story="dsink is reduced over rows in the kernel, and over batches nowhere",
    ),
    planted(
        name="dsink_is_that_of_the_last_query_tile",
        law="test_bias_and_sink_conserve",
        edits=(
            (DSINK, DSINK.replace(".sum((0, 2, 3))", "[:, :, (seqlen_q - 1) // BLOCK_M * BLOCK_M :].sum((0, 2, 3))")),
        ),
        smallest=ONE | dict(seqlen_q=17),
        story="a store in place of an atomic add: each tile of queries overwrites the sum of the one before",
    ),
    planted(
        name="dsink_of_a_row_without_keys_is_nan",
        law="test_rows_without_keys_leave_the_others_alone",
        edits=((P_SINK, P_SINK.replace("- lse", "- lse.masked_fill(lse == INF, -INF)")),),
        smallest=ONE,
        story="P_sink = exp(sink - lse), where a sink that is off and the lse of a row without keys are both -inf",
    ),
    planted(
        name="dsink_lacks_rows_without_keys",
        law="test_no_keys_give_zero",
        edits=((P_SINK, P_SINK + " * (lse > sinks[:, None, None])"),),
        smallest=ONE | dict(seqlen_k=0),
        story="a row whose lse is its sink is taken for one that is not needed, but its dlse belongs to dsink",
    ),
]
