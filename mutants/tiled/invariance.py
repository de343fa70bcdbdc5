"""Bugs of bits that depend on other sequences or queries of the call: docs/why/bugs.md#batches.

Each result is within its budget. The implementation promises that it does not change.
"""

from flash_attest.mutants.tiled.build import planted
from flash_attest.mutants.tiled.softmax import OF_VALUES

ACC_OF_ROWS = "acc = qi.new_zeros(batch, nheads, BLOCK_M, v.shape[3])\n"
OUT = "        oi = torch.where(l == 0, 0.0, acc / l)"
PV = "as_operand(p, q) @ vj"
EXP = "p = torch.exp(s - m_safe)"
TILES = "range(max(0, first_key) // BLOCK_N * BLOCK_N, min(seqlen_k, last_key), BLOCK_N):"
START = "    batch, seqlen_q, nheads, headdim = q.shape\n    seqlen_k = "
ADD_DQ = "            add_tile(dq.transpose(1, 2), i0, as_operand(dr, q) @ kj)"
SCALE_DQ = "    dq = (dq * scale).to(q.dtype)\n"
# A CPU's matrix product sums a row in an order that depends on its place. In float64 it does not
# show.
EXACT = (
    ("s = scale * (qi @ kj.mT)", "s = scale * (qi.double() @ kj.double().mT).float()"),
    (PV, "(as_operand(p, q).double() @ vj.double()).float()"),
)
PROMISES = dict(invariant={"batch", "chunks"})


def split_by(keys: str) -> tuple[tuple[str, str], ...]:
    """Return edits after which each part of that many keys has its own maximum, sum and values.

    They are merged at the end, as in split-KV. keys: an expression, rounded up to whole tiles.
    """
    return (
        (ACC_OF_ROWS, f"{ACC_OF_ROWS}        parts, keys = [], -(-({keys}) // BLOCK_N) * BLOCK_N\n"),
        (
            OF_VALUES,
            OF_VALUES.replace(
                "s, _",
                "if not parts or j0 % keys == 0:\n"
                "                parts.append((m, l, acc))\n"
                "                m, l, acc = torch.full_like(m, -INF), torch.zeros_like(l), torch.zeros_like(acc)\n"
                "            s, _",
            ),
        ),
        (
            OUT,
            "        (m, l, acc), *parts = [*parts, (m, l, acc)]\n"
            "        for m_part, l_part, acc_part in parts:\n"
            "            m_new = torch.maximum(m, m_part)\n"
            "            m_safe = m_new.masked_fill(m_new == -INF, 0.0)\n"
            "            alpha, beta = torch.exp(m - m_safe), torch.exp(m_part - m_safe)\n"
            "            m, l, acc = m_new, alpha * l + beta * l_part, alpha * acc + beta * acc_part\n" + OUT,
        ),
    )


MUTANTS = [
    planted(
        name="keys_are_split_where_few_sequences_are_in_the_batch",
        law="test_batch_changes_no_bit",
        declares=PROMISES,
        edits=split_by("seqlen_k * min(batch * nheads, 8) // 8 or 1"),
        smallest=dict(seqlen_q=3, seqlen_k=33),
        story="there are as many splits as idle blocks: fewer sequences have more splits",
    ),
    planted(
        name="a_large_batch_has_larger_tiles",
        law="test_batch_changes_no_bit",
        declares=PROMISES,
        edits=((START, f"    global BLOCK_N\n    BLOCK_N = 32 if len(q) > 64 else 16\n{START}"),),
        smallest=dict(seqlen_q=3, seqlen_k=33),
        story="the tile is tuned for the number of blocks, and sums over a tile have another order",
    ),
    planted(
        name="dq_of_a_single_sequence_is_summed_in_two_parts",
        law="test_batch_changes_no_bit",
        declares=PROMISES,
        edits=(
            (
                ADD_DQ,
                "            even = batch > 1 or j0 // BLOCK_N % 2 == 0\n"
                + ADD_DQ.replace("dq.t", "(dq if even else odd).t"),
            ),
            ("    dk, dv = k.new_zeros(k.shape)", "    odd = torch.zeros_like(dq)\n    dk, dv = k.new_zeros(k.shape)"),
            (SCALE_DQ, SCALE_DQ.replace("dq * scale", "(dq + odd) * scale")),
        ),
        smallest=dict(seqlen_q=3, seqlen_k=49),
        story="a single sequence has two blocks for each query tile in the backward, and their dq are added",
    ),
    planted(
        name="a_single_sequence_has_another_exp",
        law="test_batch_changes_no_bit",
        declares=PROMISES,
        edits=((EXP, "p = torch.exp(s - m_safe) if batch > 1 else torch.exp2((s - m_safe) * 1.4426950408889634)"),),
        smallest=dict(seqlen_q=3, seqlen_k=3),
        story="a batch of one is sent to the kernel for decoding, which has exp2 of scores in base 2",
    ),
    planted(
        name="split_size_follows_the_number_of_keys",
        law="test_chunks_change_no_bit",
        declares=PROMISES,
        edits=(*EXACT, *split_by("-(-seqlen_k // 4) or 1")),
        smallest=dict(seqlen_q=3, seqlen_k=66),
        story="keys are split into four equal parts, which are other ones with each further key of a prompt",
    ),
    planted(
        name="a_single_query_has_another_exp",
        law="test_chunks_change_no_bit",
        declares=PROMISES,
        edits=(
            *EXACT,
            (EXP, "p = torch.exp(s - m_safe) if seqlen_q > 1 else torch.exp2((s - m_safe) * 1.4426950408889634)"),
        ),
        smallest=dict(seqlen_q=2, seqlen_k=3),
        story="prefill has exp, decode exp2 of scores in base 2: equal within rounding, and not to the bit",
    ),
    planted(
        name="a_single_query_keeps_p_in_float32",
        law="test_chunks_change_no_bit",
        declares=PROMISES,
        edits=(
            EXACT[0],
            (PV, "((as_operand(p, q) if seqlen_q > 1 else p).double() @ vj.double()).float()"),
        ),
        smallest=dict(seqlen_q=2, seqlen_k=3),
        story="decode multiplies P and V without tensor cores, so P is not rounded there",
    ),
    planted(
        name="a_prefill_reads_keys_from_the_last_to_the_first",
        law="test_chunks_change_no_bit",
        declares=PROMISES,
        edits=(*EXACT, (TILES, f"({TILES[:-1]})[:: -1 if seqlen_q > 1 else 1]:")),
        smallest=dict(seqlen_q=3, seqlen_k=33),
        story="prefill begins at the diagonal, where the mask is, and decode at the first key",
    ),
]
