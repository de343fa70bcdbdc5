"""Bugs of softcap and sinks in the Triton kernels, which compute scores in base 2:
docs/why/bugs.md#softmax-and-lse.
"""

import torch

from flash_attest.mutants.triton.build import planted, supporting

CAPPED = "tanh_of_scores(qk, scale, softcap) * (softcap * LOG2E)"
BASE = "(2.0 * LOG2E / softcap)"
SLOPE_OF_DK = "            ds_t *= slope_of_cap(qk_t, scale, softcap, CAP)"
SLOPE_OF_DQ = "ds *= slope_of_cap(qk, scale, softcap, CAP)"
SLOPE = "slope = 1.0 - t * t"
SINK = "sink = tl.load(sinks_ptr + h) * LOG2E"
PART = "-p_sink * delta"
PARTS = "parts.sum(1 if p.packed else (0, 2))"
DELTA = "delta -= load_statistic(dlse_ptr + statistics, i, seqlen_q, 0.0)"
ONE_QUERY = dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1)

MUTANTS = [
    planted(
        name="triton_cap_is_in_base_e",
        law="test_capped_scores_are_the_cap",
        source="tiles.py",
        declares=supporting(backward=False, softcap=True),
        edits=((CAPPED, CAPPED.replace("(softcap * LOG2E)", "softcap")),),
        smallest=ONE_QUERY,
        story="log2(e) is folded into the scale, which the cap then hides: exp2 gets scores in base e",
    ),
    planted(
        name="triton_tanh_is_of_scores_in_base_2",
        law="test_out_matches_the_definition",
        source="tiles.py",
        declares=supporting(backward=False, softcap=True, cross=True),
        edits=((BASE, BASE.replace("LOG2E", "LOG2E * LOG2E")),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=2, headdim=1),
        story="scores are scaled by log2(e) before the cap, not after it: equal to the cap where they are large",
    ),
    planted(
        name="triton_dk_lacks_the_slope_of_the_cap",
        law="test_gradients_match_the_definition",
        source="backward.py",
        declares=supporting(softcap=True),
        edits=((SLOPE_OF_DK, "            ds_t *= 1.0"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=1),
        story="one of the two kernels that recompute dS has no derivative of tanh",
    ),
    planted(
        name="triton_slope_of_the_cap_is_that_of_masked_scores",
        law="test_gradients_match_the_definition",
        source="backward.py",
        declares=supporting(softcap=True),
        edits=((SLOPE_OF_DQ, "ds *= 1.0 - (s / (softcap * LOG2E)) * (s / (softcap * LOG2E))"),),
        smallest=ONE_QUERY,
        story="the derivative is computed from scores that are masked already: 1 - inf^2, and 0 times that is NaN",
    ),
    planted(
        name="triton_slope_of_the_cap_squares_the_capped_score",
        law="test_gradients_match_the_definition",
        source="tiles.py",
        declares=supporting(softcap=True),
        edits=((SLOPE, "slope = 1.0 - t * t * softcap"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=1),
        story="1 - S^2 / softcap in place of 1 - (S / softcap)^2",
    ),
    planted(
        name="triton_sink_is_in_base_e",
        law="test_sink_takes_its_share",
        source="forward.py",
        declares=supporting(backward=False, sinks=True),
        edits=((SINK, "sink = tl.load(sinks_ptr + h)"),),
        smallest=dict(batch=1, nheads=2, seqlen_q=1, seqlen_k=1, headdim=1),
        story="scores are in base 2, the sink is not converted; a sink of 0 hides it",
    ),
    planted(
        name="triton_sink_is_that_of_the_key_head",
        law="test_sink_takes_its_share",
        source="forward.py",
        declares=supporting(backward=False, sinks=True, gqa=True),
        edits=((SINK, SINK.replace("+ h", "+ h // group")),),
        smallest=dict(batch=1, nheads=2, nheads_k=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="the head of k and v is used for the sink, too",
    ),
    planted(
        name="triton_maximum_of_the_first_tile_forgets_the_sink",
        law="test_high_sink_takes_all",
        source="forward.py",
        declares=supporting(backward=False, sinks=True),
        edits=(
            ("m = tl.zeros((BLOCK_M,), tl.float32) + sink", "m = tl.full((BLOCK_M,), -INF, tl.float32)"),
            ("    dead = l == 0.0", "    if SINKS:\n        l += tl.exp2(sink - m)\n    dead = l == 0.0"),
        ),
        smallest=ONE_QUERY,
        story="exp2(sink - m) is added behind the loop, and overflows where the sink is far above the scores",
    ),
    planted(
        name="triton_dsink_is_in_base_e",
        law="test_gradients_match_the_definition",
        source="backward.py",
        declares=supporting(sinks=True, sink_grad=True),
        edits=((SINK, "sink = tl.load(sinks_ptr + h)"),),
        smallest=ONE_QUERY,
        story="P_sink = exp2(sink - lse log2(e)): the factor is missing in the small kernel alone",
    ),
    planted(
        name="triton_dsink_is_that_of_the_first_query_tile",
        law="test_gradients_match_the_definition",
        source="backward.py",
        declares=supporting(sinks=True, sink_grad=True, cross=True),
        edits=((PART, "tl.where(i0 == 0, -p_sink * delta, 0.0)"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=33, seqlen_k=1, headdim=1),
        story="one program of each head writes dsink, and it has seen the first tile only",
    ),
    planted(
        name="triton_dsink_is_that_of_each_batch_and_head",
        law="test_gradients_match_the_definition",
        source="attention.py",
        declares=supporting(sinks=True, sink_grad=True),
        edits=((PARTS, "parts[-1].sum(1)"),),
        smallest=dict(batch=2, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="each batch writes its dsink to the same place, and the last one stays",
    ),
    planted(
        name="triton_dlse_is_added",
        law="test_loss_on_out_and_lse",
        source="backward.py",
        declares=supporting(lse_grad=True),
        edits=((DELTA, DELTA.replace("-=", "+=")),),
        smallest=ONE_QUERY,
        story="delta + dlse in place of delta - dlse",
    ),
    planted(
        name="triton_dlse_is_in_base_2",
        law="test_loss_on_out_and_lse",
        source="backward.py",
        declares=supporting(torch.bfloat16, lse_grad=True),
        edits=((DELTA, DELTA + " * LOG2E"),),
        smallest=ONE_QUERY,
        story="the kernel loads lse by a function that converts it to base 2, and dlse by the same one",
    ),
]
