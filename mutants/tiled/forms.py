"""Bugs of calls of other forms that only a law about forms sees:
docs/why/bugs.md#forms.
"""

from functools import partial

from flash_attest.mutants.mutant import ONE
from flash_attest.mutants.tiled.build import planted

paged = partial(planted, impl="python_tiled_paged")
varlen = partial(planted, impl="python_tiled_varlen")

ROW = "x[pages[j // page_size], j % page_size]"
LENGTHS = "    lengths = (seqused_k + (0 if k_new is None else k_new.shape[1])).tolist()\n"
CALL = "block_table, lengths, scoring, sinks, num_splits)\n\n\ndef append"
HEADS = "    total_q, nheads, _ = q.shape\n    kv_head = key_head_of(q[None], k[None])\n"
FORWARD_OF = "    return forward_of(q, k, v, queries, keys, max_seqlen_q, scoring, sinks)\n"
VALUES = "load(v_n, j0, BLOCK_N)[:, kv_head]\n\n        for i0 in range(0, max_seqlen_q, BLOCK_M):"


def remembered(same: str, key: str) -> tuple[tuple[str, str], ...]:
    """Return edits that keep which sequences have queries, by `key`, while `same` holds."""
    found = (
        "    for tensor, filled in KEPT:\n"
        f"        if {same}:\n"
        "            break\n"
        "    else:\n"
        "        filled = [length > 0 for length in queries.lengths]\n"
        f"        KEPT[:] = [*KEPT[-3:], ({key}, filled)]\n"
        "    queries = queries._replace(lengths=[n if some else 0 for n, some in zip(queries.lengths, filled)])\n"
    )
    return ("def forward_of(", "KEPT = []\n\n\ndef forward_of("), (FORWARD_OF, found + FORWARD_OF)


MUTANTS = [
    paged(
        name="pages_are_read_in_the_order_of_their_numbers",
        law="test_order_of_pages_does_not_matter",
        edits=((ROW, ROW.replace("pages[j", "pages[: -(-seqlen_k // page_size)].sort().values[j")),),
        smallest=ONE | dict(seqlen_q=3, seqlen_k=18),
        story="pages are sorted for the cache's sake: the partial one is no longer the last",
    ),
    paged(
        name="rows_behind_the_new_keys_are_cleared",
        law="test_append_then_attend_is_concatenate",
        edits=(
            (
                "        v[page, row] = v_new[n, new]\n",
                "        v[page, row] = v_new[n, new]\n            k[page, row + 1 :] = 0\n",
            ),
        ),
        smallest=ONE | dict(seqlen_k=3),
        story="new keys are written as a tile, and its padding overwrites the rest of the page",
    ),
    paged(
        name="no_more_than_four_splits_are_launched",
        law="test_number_of_splits_does_not_matter",
        edits=(("for part in range(num_splits):", "for part in range(min(num_splits, 4)):"),),
        smallest=ONE | dict(seqlen_q=8, seqlen_k=80, num_splits=64),
        story="the number of splits is limited at the launch, and the size of a split is not",
    ),
    varlen(
        name="rows_of_nobody_are_not_written",
        law="test_rows_of_nobody_are_zero",
        edits=(("out = q.new_zeros(total_q, nheads, v.shape[2])", "out = q.new_empty(total_q, nheads, v.shape[2])"),),
        smallest=ONE | dict(slack=17),
        story="out is allocated and not cleared, and no block writes the rows behind the last sequence",
    ),
    paged(
        name="lengths_of_the_first_call_are_kept",
        law="test_answers_follow_lengths_and_tables",
        edits=(
            ("MOST_SPLITS = 64\n", "MOST_SPLITS = 64\nPLANS = {}\n"),
            (LENGTHS, f"{LENGTHS}    lengths, _ = PLANS.setdefault(seqused_k.data_ptr(), (lengths, seqused_k))\n"),
        ),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2),
        story="a plan that is made from the lengths is kept by their address, and used after they have changed",
    ),
    varlen(
        name="sequences_without_queries_are_remembered",
        law="test_answers_follow_lengths_and_tables",
        edits=remembered("tensor is cu_seqlens_q", "cu_seqlens_q"),
        smallest=ONE | dict(seqlen_q=2, seqlen_k=2, neighbours="empty"),
        story="a list of the sequences with queries is kept by the identity of cu_seqlens_q, and the tensor gets new values",
    ),
    paged(
        name="page_number_has_16_bits",
        law="test_pages_may_lie_far_apart",
        edits=((ROW, ROW.replace("pages[j // page_size]", "pages[j // page_size] % 65536")),),
        smallest=ONE,
        story="the table is copied to shared memory as unsigned short",
    ),
    paged(
        name="offset_of_a_page_has_32_bits",
        law="test_pages_may_lie_far_apart",
        edits=(
            (
                ROW,
                "x.flatten(0, 1)[((pages[j // page_size].long() * page_size + j % page_size) * x[0, 0].numel()) "
                "% 2**32 // x[0, 0].numel() % (len(x) * page_size)]",
            ),
        ),
        smallest=ONE | dict(nheads=3, seqlen_k=16, headdim=128),
        story="page * stride is a product of two 32-bit integers",
    ),
    paged(
        name="splits_follow_the_longest_sequence_of_the_batch",
        law="test_batch_changes_no_bit",
        edits=((CALL, CALL.replace("num_splits)", "max(num_splits, max_seqlen_k // 64))")),),
        smallest=ONE | dict(seqlen_q=3, seqlen_k=66, neighbours="longer"),
        story="one number of splits serves the batch, and follows max_seqlen_k",
    ),
    paged(
        name="keys_are_split_where_every_sequence_has_one_query",
        law="test_batch_changes_no_bit",
        edits=((CALL, CALL.replace("num_splits)", "8 if max_seqlen_q == 1 and max_seqlen_k >= 200 else num_splits)")),),
        declares=dict(paths={"seqlen_k": (200,)}),
        smallest=ONE | dict(seqlen_k=202),
        story="decoding has a path of its own from some number of keys on, and a prefill in the same batch turns it off",
    ),
    varlen(
        name="values_are_scaled_by_the_largest_of_the_buffer",
        law="test_neighbours_change_no_bit",
        edits=(
            (HEADS, f"{HEADS}    top = v.float().abs().amax().clamp(min=1e-6) if len(v) else 1.0\n"),
            (VALUES, VALUES.replace("load(v_n, j0, BLOCK_N)", "(load(v_n, j0, BLOCK_N) / top * top)")),
        ),
        smallest=ONE | dict(batch=2),
        story="one scale serves all sequences that are packed together: the others change the last digits, or give NaN",
    ),
]
