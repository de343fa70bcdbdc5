"""Intermittent bugs: results that depend on timing, or on earlier calls: docs/why/bugs.md#races.

Timing is simulated by a seeded generator, so each run of a mutant gives the same verdict.
"""

from flash_attest.mutants.tiled.build import planted

INF = 'INF = float("inf")\n'
LUCK = (INF, "import random\n\n" + INF + "LUCK = random.Random(0)\n")
KEPT = (INF, INF + "KEPT = {}\n")
DELTA = "    delta = (dout.float() * out.float()).sum(-1, keepdim=True)"

MUTANTS = [
    planted(
        name="tile_is_lost_once_in_twenty",
        law="test_repeats_agree",
        edits=(
            LUCK,
            (
                "            m_new = torch.maximum(",
                "            if LUCK.random() < 0.05:\n                continue\n            m_new = torch.maximum(",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=24, seqlen_k=24, headdim=1),
        story="a missing barrier before the tile is read",
    ),
    planted(
        name="next_value_tile_arrives_too_early",
        law="test_repeats_agree",
        edits=(
            LUCK,
            (
                "            vj = load_tile(v.transpose(1, 2), j0, BLOCK_N)",
                "            vj = load_tile(v.transpose(1, 2), j0 + BLOCK_N * (LUCK.random() < 0.05), BLOCK_N)",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=24, seqlen_k=24, headdim=1),
        story="write after read: the next V tile is loaded while the last product still reads this one",
    ),
    planted(
        name="dq_is_summed_in_any_order",
        law="test_repeats_agree",
        edits=(
            LUCK,
            (
                "    for j0 in range(0, seqlen_k, BLOCK_N):",
                "    for j0 in LUCK.sample(range(0, seqlen_k, BLOCK_N), -(-seqlen_k // BLOCK_N)):",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=64, seqlen_k=64, headdim=8),
        story="dq is summed by atomics but declared repeatable; the sum of only two tiles always repeats",
    ),
    planted(
        name="dq_goes_on_from_the_last_call",
        law="test_repeats_agree",
        edits=(
            KEPT,
            (
                "dq = q.new_zeros(q.shape, dtype=torch.float32)",
                "dq = KEPT.setdefault((q.shape, q.dtype), q.new_zeros(q.shape, dtype=torch.float32))",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=24, seqlen_k=24, headdim=1),
        story="a kernel that adds to its output is wrong the second time it is called (autotuning calls it twice)",
    ),
    planted(
        name="lse_of_all_calls_has_one_place",
        law="test_backward_belongs_to_its_own_forward",
        edits=(
            KEPT,
            ("    return out, lse\n", "    KEPT[q.shape] = lse\n    return out, lse\n"),
            ("lse = lse.masked_fill(dead, INF)", "lse = KEPT.get(q.shape, lse).masked_fill(dead, INF)"),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=2),
        story="what the forward keeps for the backward is kept by module: right until a model has two layers",
    ),
    planted(
        name="delta_is_that_of_the_call_before",
        law="test_repeats_agree",
        edits=(
            KEPT,
            (
                DELTA,
                DELTA + "\n    KEPT[q.shape], delta = delta, KEPT.get(q.shape, delta)",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=24, seqlen_k=24, headdim=1),
        story="delta's buffer is read before the kernel that writes it: right while the same call is repeated",
    ),
]
