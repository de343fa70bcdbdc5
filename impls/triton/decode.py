"""Decoding from pages, with the keys split among programs (flash-decoding, Dao et al. 2023).

One program (sequence, key head, tile of rows, split) loops over the key tiles of its split.

    rows    The query heads that read one key head are packed into one tile: row r is query
            r // group and head r % group of that key head. So a single query fills a tile of a
            matrix unit, and its keys are loaded once for the whole group.
    keys    Key j of a sequence lies in row j % page_size of page block_table[j // page_size].
    splits  Split s has the key tiles s, s + num_splits, s + 2 num_splits, ... Which split adds a
            key depends neither on the length of its sequence nor on other sequences, so a query has
            the same bits in a prompt, in a part of it and alone, whatever else is in the batch.

A split writes its part of out and lse in float32, and 0 and -inf if it has no key. merge.py merges
the parts.
"""

import triton
import triton.language as tl

from .tiles import INF, LN2, elements, matrix_of, product, scores

# Triton should compile neither for every length nor for every address (tiles.py).
NUMBERS = [
    "scale", "softcap", "q_strides", "k_strides", "v_strides", "k_new_strides", "v_new_strides", "nheads", "nheads_k",
    "group", "total_q", "most_pages", "page_size", "append", "left", "right", "tiles", "num_splits", "headdim",
    "headdim_v",
]  # fmt: skip
TENSORS = [
    "q_ptr", "k_ptr", "v_ptr", "k_new_ptr", "v_new_ptr", "out_ptr", "lse_ptr", "cu_seqlens_q_ptr", "seqused_k_ptr",
    "block_table_ptr",
]  # fmt: skip


@triton.jit
def pages_of(table_ptr, j, seen, page_size):
    """Return the pages (int64) of the keys j of a sequence, and their rows in the page.

    Only keys that are `seen` have an entry: what stands behind them in the table is undefined.
    """
    page = tl.load(table_ptr + j // page_size, mask=seen, other=0)
    return page.to(tl.int64), (j % page_size).to(tl.int64)


@triton.jit
def load_rows(ptr, page, row, strides, seen, headdim, BLOCK_D: tl.constexpr, ALIGN: tl.constexpr):
    """Load these rows of pages as a tile (BLOCK_N, BLOCK_D), 0 where not `seen` or beyond headdim.

    ptr points to the key head.
    """
    offsets = page * elements(strides.batch, ALIGN) + row * elements(strides.row, ALIGN)
    columns = tl.arange(0, BLOCK_D)[None, :]
    mask = seen[:, None] & (columns < headdim // ALIGN * ALIGN)
    return tl.load(ptr + offsets[:, None] + columns, mask=mask, other=0.0)


@triton.jit
def first_of_split(first, split, num_splits, BLOCK_N: tl.constexpr):
    """Return the first key of the first tile of a split that has a key from `first` on."""
    tile = first // BLOCK_N
    return (tile + (split - tile % num_splits + num_splits) % num_splits) * BLOCK_N


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=TENSORS)
def decode_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, cu_seqlens_q_ptr, seqused_k_ptr, block_table_ptr, scale, softcap,
    q_strides, k_strides, v_strides, nheads, nheads_k, group, total_q, most_pages, page_size, append, left, right,
    tiles, num_splits, headdim, headdim_v,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_DV: tl.constexpr,
    ALIGN: tl.constexpr, CAP: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """Write parts: out (num_splits, total_q, nheads, headdim_v), lse (num_splits, nheads, total_q).

    A sequence has seqused_k + append keys. Its query i sees the keys from `left` before to `right`
    behind the one on its diagonal, which ends at the last query and key.
    """
    split = tl.program_id(0) % num_splits
    r0 = tl.program_id(0) // num_splits % tiles * BLOCK_M
    bh = tl.program_id(0) // num_splits // tiles
    b, h_k = bh // nheads_k, bh % nheads_k
    start_q = tl.load(cu_seqlens_q_ptr + b)
    seqlen_q = tl.load(cu_seqlens_q_ptr + b + 1) - start_q
    if r0 >= seqlen_q * group:  # there are programs for the longest sequence
        return
    seqlen_k = tl.load(seqused_k_ptr + b) + append

    r = r0 + tl.arange(0, BLOCK_M)
    i, h = r // group, h_k * group + r % group
    row = (start_q + i).to(tl.int64)
    exists = i < seqlen_q
    columns = tl.arange(0, BLOCK_D)[None, :]
    q_ptr = matrix_of(q_ptr, q_strides, 0, 0, ALIGN)
    q_rows = row * elements(q_strides.row, ALIGN) + h.to(tl.int64) * elements(q_strides.head, ALIGN)
    here = exists[:, None] & (columns < headdim // ALIGN * ALIGN)
    q = tl.load(q_ptr + q_rows[:, None] + columns, mask=here, other=0.0)
    q = tl.where(scale < 0, -q, q)  # as in forward.py
    scale = tl.abs(scale)
    k_ptr = matrix_of(k_ptr, k_strides, 0, h_k, ALIGN)
    v_ptr = matrix_of(v_ptr, v_strides, 0, h_k, ALIGN)
    block_table_ptr += b.to(tl.int64) * most_pages

    begin = seqlen_k - seqlen_q - left
    diagonal = seqlen_k - seqlen_q + tl.minimum(right, seqlen_q)
    last_query = tl.minimum((r0 + BLOCK_M - 1) // group, seqlen_q - 1)
    first = tl.maximum(r0 // group + begin, 0) if WINDOW else 0
    last = tl.minimum(seqlen_k, last_query + diagonal + 1)
    m = tl.full((BLOCK_M,), -INF, tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_DV), tl.float32)
    for j0 in tl.range(first_of_split(first, split, num_splits, BLOCK_N), last, num_splits * BLOCK_N):
        j = j0 + tl.arange(0, BLOCK_N)
        in_cache = (j >= first) & (j < seqlen_k)  # keys before every window may be freed
        page, row_of_page = pages_of(block_table_ptr, j, in_cache, page_size)
        k = load_rows(k_ptr, page, row_of_page, k_strides, in_cache, headdim, BLOCK_D, ALIGN)
        qk = product(q, tl.trans(k), "ieee")
        s = scores(
            qk, q_ptr, i[:, None], j[None, :], scale, softcap, 0, seqlen_q, seqlen_k, begin, diagonal,
            False, CAP, WINDOW, True,
        )  # fmt: skip
        m_new = tl.maximum(m, tl.max(s, 1))
        m_safe = tl.where(m_new == -INF, 0.0, m_new)
        p = tl.exp2(s - m_safe[:, None])
        alpha = tl.exp2(m - m_safe)
        l = alpha * l + tl.sum(p, 1)
        v = load_rows(v_ptr, page, row_of_page, v_strides, in_cache, headdim_v, BLOCK_DV, ALIGN)
        acc = acc * alpha[:, None] + product(p.to(v.dtype), v, "ieee")
        m = m_new

    empty = l == 0.0
    out = acc / tl.where(empty, 1.0, l)[:, None]
    lse = tl.where(empty, -INF, (m + tl.log2(tl.where(empty, 1.0, l))) * LN2)
    columns = tl.arange(0, BLOCK_DV)[None, :]
    out_rows = ((split.to(tl.int64) * total_q + row) * nheads + h) * headdim_v
    tl.store(out_ptr + out_rows[:, None] + columns, out, mask=exists[:, None] & (columns < headdim_v))
    tl.store(lse_ptr + (split.to(tl.int64) * nheads + h) * total_q + row, lse, mask=exists)


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=TENSORS)
def append_kernel(
    k_new_ptr, v_new_ptr, k_ptr, v_ptr, seqused_k_ptr, block_table_ptr,
    k_new_strides, v_new_strides, k_strides, v_strides, nheads_k, most_pages, page_size, append, headdim, headdim_v,
    BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Write one new key and its value behind those of its sequence: program (b, key head, new)."""
    new = tl.program_id(0) % append
    bh = tl.program_id(0) // append
    b, h = bh // nheads_k, bh % nheads_k
    j = tl.load(seqused_k_ptr + b) + new
    page, row = pages_of(block_table_ptr + b.to(tl.int64) * most_pages, j, True, page_size)
    copy_row(k_new_ptr, k_new_strides, b, new, k_ptr, k_strides, page, row, h, headdim, BLOCK_D)
    copy_row(v_new_ptr, v_new_strides, b, new, v_ptr, v_strides, page, row, h, headdim_v, BLOCK_D)


@triton.jit
def copy_row(new_ptr, new_strides, b, new, ptr, strides, page, row, h, headdim, BLOCK_D: tl.constexpr):
    """Copy row `new` of batch b to a row of a page, of head h."""
    columns = tl.arange(0, BLOCK_D)
    new_ptr = matrix_of(new_ptr, new_strides, b, h, 1) + new.to(tl.int64) * elements(new_strides.row, 1)
    ptr = matrix_of(ptr, strides, page, h, 1) + row * elements(strides.row, 1)
    tl.store(ptr + columns, tl.load(new_ptr + columns, mask=columns < headdim), mask=columns < headdim)
