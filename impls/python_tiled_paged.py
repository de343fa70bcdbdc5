"""python_tiled for keys in pages, split over programs as decode kernels are, and merged by lse.

Key j of sequence n is row j % page_size of page block_table[n, j // page_size]. Pages lie in any
order, and anywhere in the pool. Entries of the table behind a sequence's last page, rows behind its
last key, and keys before every window are not read.

The tiles of keys that a tile of queries sees are divided into num_splits parts of as many tiles.
Each part is a program with its own running maximum and sum (attend of python_tiled_varlen.py), and
a second launch merges the parts (python_tiled_merge.py). The sink belongs to the first part.
"""

from dataclasses import replace

import torch
from torch.nn.functional import pad

from flash_attest.impls import Implementation, Precision
from flash_attest.impls.contract.shares import FORM_OF_TILED
from flash_attest.impls.python_tiled import BLOCK_M, BLOCK_N, INF, key_head_of, load_tile, store_tile
from flash_attest.impls.python_tiled_merge import merged
from flash_attest.impls.python_tiled_varlen import (
    SUPPORTS,
    attend,
    check,
    check_tables,
    load,
    rows_of,
    scoring_of,
    sequence,
    tiles_of_keys,
)

MOST_SPLITS = 64


def forward(
    q, k, v, *, cu_seqlens_q, max_seqlen_q, block_table, seqused_k, max_seqlen_k, k_new=None, v_new=None,
    num_splits=1, causal=False, window=None, softmax_scale=None, softcap=None, sinks=None,
):  # fmt: skip
    """(total_q, h, d), (pages, page_size, hk, d or dv) -> out (total_q, h, dv), lse (h, total_q).

    block_table (batch, most_pages), int32: the pages of each sequence. seqused_k (batch), int32:
    the number of its keys in the pages. k_new, v_new (batch, new, hk, d or dv) are written behind
    them, and attended to. Raises ValueError for a call outside of `supports`.
    """
    check("python_tiled_paged", q, k, v, window, softcap, sinks)
    batch = seqused_k.shape[0]
    check_tables(q, (batch + 1,), cu_seqlens_q=cu_seqlens_q)
    check_tables(q, (batch,), seqused_k=seqused_k)
    check_tables(q, (batch, *block_table.shape[1:]), block_table=block_table)
    append(k, v, block_table, seqused_k, k_new, v_new)
    lengths = (seqused_k + (0 if k_new is None else k_new.shape[1])).tolist()
    scoring = scoring_of(q, causal, window, softmax_scale, softcap)
    return decode(q, k, v, rows_of(cu_seqlens_q), max_seqlen_q, block_table, lengths, scoring, sinks, num_splits)


def append(k, v, block_table, seqused_k, k_new, v_new):
    """Write the new keys and values of each sequence behind those that it has."""
    if k_new is None:
        return
    page_size = k.shape[1]
    for n, length in enumerate(seqused_k.tolist()):
        for new in range(k_new.shape[1]):
            page, row = block_table[n, (length + new) // page_size], (length + new) % page_size
            k[page, row] = k_new[n, new]
            v[page, row] = v_new[n, new]


def decode(q, k, v, queries, max_seqlen_q, block_table, lengths, scoring, sinks, num_splits):
    """Return out (total_q, h, dv), lse (h, total_q) of sequences of these numbers of keys."""
    total_q, nheads, _ = q.shape
    kv_head = key_head_of(q[None], k)
    # The parts of rows that see no key in them, and of rows of nobody, stay neutral.
    out_parts = q.new_zeros(num_splits, total_q, nheads, v.shape[3], dtype=torch.float32)
    lse_parts = q.new_full((num_splits, total_q, nheads, 1), -INF, dtype=torch.float32)
    for n, seqlen_k in enumerate(lengths):
        seqlen_q, q_n = queries.lengths[n], sequence(q, queries, n)

        for i0 in range(0, max_seqlen_q, BLOCK_M):
            if i0 >= seqlen_q:
                continue  # the launch is for the longest sequence
            qi = load(q_n, i0, BLOCK_M)
            tiles = tiles_of_keys(i0, seqlen_q, seqlen_k, scoring)
            first_key = max(0, i0 + seqlen_k - seqlen_q - scoring.left)  # that a query of this tile sees

            def load_keys(j0, pages=block_table[n], first_key=first_key, seqlen_k=seqlen_k):
                return (load_pages(x, pages, j0, first_key, seqlen_k)[:, kv_head] for x in (k, v))

            size = -(-len(tiles) // num_splits)  # tiles of a part; the last parts may have none
            for part in range(num_splits):
                own = tiles[part * size : (part + 1) * size]
                sink = sinks if part == 0 else None
                if not own and sink is None:
                    continue
                oi, lse_i = attend(q, qi, i0, seqlen_q, seqlen_k, scoring, sink, own, load_keys, v.shape[3])
                store_tile(sequence(out_parts[part], queries, n), i0, oi)
                store_tile(sequence(lse_parts[part], queries, n), i0, lse_i)
    out, lse = merged(out_parts, lse_parts)
    return out.to(q.dtype), lse.squeeze(2).T


def load_pages(x, pages, j0, first_key, seqlen_k):
    """Return rows j0 .. j0 + BLOCK_N of a sequence, (1, hk, BLOCK_N, d).

    They are 0 before first_key, whose pages may be freed, and after seqlen_k. x (pages, page_size,
    hk, d): the pool of keys or values. pages (most_pages): the pages of the sequence.
    """
    j, page_size = torch.arange(max(j0, first_key), min(j0 + BLOCK_N, seqlen_k), device=x.device), x.shape[1]
    rows = x[pages[j // page_size], j % page_size].transpose(0, 1).unsqueeze(0)
    return load_tile(pad(rows, (0, 0, max(first_key - j0, 0), 0)), 0, BLOCK_N)


IMPL = Implementation(
    name="python_tiled_paged",
    forward=forward,
    devices={"cpu"},  # as python_tiled
    supports=replace(
        SUPPORTS, form="paged", page_sizes={1, 3, 16, 17, 64}, append=True, splits=range(1, MOST_SPLITS + 1)
    ),
    causal_alignment="bottom_right",
    lse="natural",
    empty_rows="zero",
    slack="unseen",
    slack_rows="zero",
    invariant={"batch"},
    precision=Precision(probabilities="operand", merge="lse"),
    tile=(BLOCK_M, BLOCK_N),
    share=FORM_OF_TILED,
)
