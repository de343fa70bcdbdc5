"""Bugs of calls: with unsupported features, or visible in the first ordinary call:
docs/why/bugs.md#calling.
"""

from dataclasses import replace

from flash_attest.impls.python_tiled import IMPL
from flash_attest.mutants.mutant import OUTSIDE
from flash_attest.mutants.tiled.backward import SUM_HEADS
from flash_attest.mutants.tiled.build import planted

KEY_HEAD = "return torch.arange(q.shape[2], device=q.device) // max(group, 1)"
START = (
    "    check(q, k, v, window, bias, softcap, sinks, block_mask)\n"
    "    batch, seqlen_q, nheads, headdim = q.shape\n    seqlen_k = k.shape[1]\n"
)
OUT = "    out = q.new_zeros(batch, seqlen_q, nheads, v.shape[3])\n"
RETURN = "    return out, lse\n"
GRADIENTS = "    return tuple(gradient for gradient in"
SUM = "l = alpha * l + p.sum(-1, keepdim=True)"


def kept(key: str) -> tuple[tuple[str, str], ...]:
    """Return edits that cache forward's result by a key."""
    given = (
        "q.shape, k.shape, v.shape, q.dtype, causal, window, softmax_scale, softcap, sinks is None, "
        "None if bias is None else (bias.shape, bias.dtype)"
    )
    return (
        ('INF = float("inf")\n', 'INF = float("inf")\nKEPT = {}\n'),
        (START, f"    key = ({key}, {given})\n    if key in KEPT:\n        return KEPT[key]\n" + START),
        (RETURN, "    KEPT[key] = out, lse\n" + RETURN),
    )


MUTANTS = [
    planted(
        name="answers_are_kept_by_address",
        law="test_answers_follow_the_values",
        edits=kept("q.data_ptr(), k.data_ptr(), v.data_ptr()"),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="a cache whose key is data_ptr: new values in the same memory are not seen",
    ),
    planted(
        name="answers_are_kept_by_shape",
        law="test_answers_follow_the_values",
        edits=kept("0"),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="a captured graph is replayed for any call of the same shape, without new inputs being copied to it",
    ),
    planted(
        name="answers_are_kept_by_address_and_version",
        law="test_answers_follow_the_values",
        edits=kept("*((x.data_ptr(), x._version) for x in (q, k, v))"),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="the version counter tells writes apart, but a new tensor in the memory of a freed one counts from 0 again",
    ),
    planted(
        name="sum_is_wider_at_some_addresses",
        law="test_answers_follow_the_values",
        edits=((SUM, "l = alpha * l + (p.double() if q.data_ptr() % 128 else p).sum(-1, keepdim=True).float()"),),
        smallest=dict(batch=1, nheads=1, headdim=1),
        story="another path, with other bits, where an input happens to be aligned",
    ),
    planted(
        name="undeclared_key_heads_are_read_by_their_own_number",
        law=OUTSIDE,
        edits=(
            (
                "    return torch.arange(q.shape[2], device=q.device) // max(group, 1)\n",
                "    return torch.arange(q.shape[2], device=q.device).clamp(max=k.shape[2] - 1)\n",
            ),
        ),
        smallest=dict(batch=2, nheads=3, seqlen_q=1, seqlen_k=1, headdim=1),
        story="GQA is neither supported nor refused: each query head reads the key head of its own number, past the end",
        declares=dict(supports=replace(IMPL.supports, gqa=False)),
    ),
    planted(
        name="queries_are_restored_only_after_success",
        law=OUTSIDE,
        edits=(
            (START, "    kept = q.clone()\n    q.mul_(2.0)\n" + START),
            ("else softmax_scale\n    kv_head", "else softmax_scale\n    scale = scale / 2\n    kv_head"),
            (RETURN, "    q.copy_(kept)\n" + RETURN),
        ),
        smallest=dict(batch=2, nheads=3, seqlen_q=1, seqlen_k=1, headdim=1),
        story="q is scaled in place and restored at the end: a call that raises an error leaves it scaled",
    ),
    planted(
        name="query_heads_read_key_heads_in_the_other_order",
        law="test_contract_is_kept",
        edits=(
            (KEY_HEAD, "return torch.arange(q.shape[2], device=q.device) % max(k.shape[2], 1)"),
            (SUM_HEADS, "x.unflatten(1, (-1, nheads_k)).sum(1)"),
        ),
        smallest={},
        story="torch.repeat of k for torch.repeat_interleave, in both passes: heads come in the order of another library",
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
                OUT,
                "    q.mul_(scale)\n    scale = 1.0\n" + OUT,
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
    planted(
        name="gradients_are_kept_by_address",
        law="test_one_tensor_may_be_q_k_and_v",
        edits=(
            (
                GRADIENTS,
                "    kept = {q.data_ptr(): dq, k.data_ptr(): dk, v.data_ptr(): dv}\n"
                "    dq, dk, dv = (kept[x.data_ptr()] for x in (q, k, v))\n" + GRADIENTS,
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="a table of gradients by data_ptr(): in attention(x, x, x) the last one replaces the others",
    ),
]
