"""Bugs of calls: outside of what is declared, and those that the first ordinary call shows: docs/bugs.md#calling."""

from dataclasses import replace

from impls.python_tiled import IMPL
from mutants.tiled.build import planted

MUTANTS = [
    planted(
        name="undeclared_key_heads_are_read_by_their_own_number",
        law="test_calls_outside_the_promise_raise_or_are_right",
        edits=(
            (
                "    return torch.arange(q.shape[2], device=q.device) // max(group, 1)\n",
                "    return torch.arange(q.shape[2], device=q.device).clamp(max=k.shape[2] - 1)\n",
            ),
        ),
        smallest=dict(batch=2, nheads=3, seqlen_q=1, seqlen_k=1, headdim=1),
        story="no GQA is promised and none is refused: each query head reads the key head of its own number, past the end",
        declares=dict(supports=replace(IMPL.supports, gqa=False)),
    ),
    planted(
        name="lse_is_in_base_2",
        law="test_contract_is_kept",
        edits=(("lse_i = m + torch.log(l)", "lse_i = (m + torch.log(l)) * 1.4426950408889634"),),
        smallest={},
        story="the kernel works with exp2 and returns its own lse",
    ),
    planted(
        name="lse_is_the_sum_itself",
        law="test_contract_is_kept",
        edits=(("lse_i = m + torch.log(l)", "lse_i = torch.exp(m) * l"),),
        smallest={},
        story="the logarithm is left to the caller, which is not declared",
    ),
    planted(
        name="queries_are_scaled_in_place",
        law="test_contract_is_kept",
        edits=(
            (
                "    out = q.new_zeros(q.shape)\n",
                "    q.mul_(scale)\n    scale = 1.0\n    out = q.new_zeros(q.shape)\n",
            ),
        ),
        smallest={},
        story="q *= softmax_scale, in the caller's tensor",
    ),
    planted(
        name="gqa_key_gradients_have_a_row_per_query_head",
        law="test_contract_is_kept",
        edits=(
            (
                "dk, dv = k.new_zeros(k.shape), v.new_zeros(v.shape)",
                "dk, dv = (x.new_zeros(x.shape)[:, :, kv_head] for x in (k, v))",
            ),
            ("sum_query_heads(dkj, nheads_k)", "dkj"),
            ("sum_query_heads(dvj, nheads_k)", "dvj"),
        ),
        smallest={},
        story="dk and dv are returned for each query head, not summed over the group",
    ),
    planted(
        name="dq_comes_back_in_float32",
        law="test_contract_is_kept",
        edits=(("dq = (dq * scale).to(q.dtype)", "dq = dq * scale"),),
        smallest={},
        story="the float32 accumulator is returned",
    ),
]
