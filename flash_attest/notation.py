"""Notation: the lengths and tables of a call, as other libraries write them.

    from flash_attest.notation import page_lists

    def forward(q, k, v, *, cu_seqlens_q, block_table, seqused_k, **keywords):
        kv_indptr, kv_indices, kv_last_page_len = page_lists(block_table, seqused_k, k.shape[1])
        ...

An implementation gets cu_seqlens, seqused and block_table as FlashAttention and vLLM have them. An
adapter changes them to what its kernel takes:

    lengths_of      cu_seqlens -> lengths                          xformers
    cu_seqlens_of   lengths -> cu_seqlens                          FlashInfer's indptr
    page_lists      block_table -> pages in CSR form               FlashInfer
    slots_of        block_table -> a slot for each key             SGLang; slot_mapping of vLLM
    rows_of         cu_seqlens -> sequence and position of a row   segment ids; FlashInfer appends
    ragged_offsets  cu_seqlens -> offsets in elements              cuDNN
    packed, padded  (batch, most, ...) <-> (total, ...)            kernels that take one of the two

All are functions of torch tensors, on any device. They check the values that they read, so on a GPU
they wait for it, and a CUDA graph cannot capture them. A wrong tensor raises ValueError.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

INTEGERS = (torch.int32, torch.int64)


class PageLists(NamedTuple):
    """Pages in CSR form, as FlashInfer takes them, each int32.

    kv_indptr (batch + 1): where the pages of a sequence begin in kv_indices. kv_indices: the pages
    in use, one sequence behind the other. kv_last_page_len (batch): how many keys the last page of
    a sequence holds, 1 to page_size; 0 for a sequence without keys, which has no page.
    """

    kv_indptr: torch.Tensor
    kv_indices: torch.Tensor
    kv_last_page_len: torch.Tensor


class Rows(NamedTuple):
    """The sequence of each row of a packed tensor, and its position there, (total) in int64.

    Both are -1 in rows that belong to no sequence.
    """

    sequence: torch.Tensor
    position: torch.Tensor


def lengths_of(cu_seqlens: torch.Tensor) -> torch.Tensor:
    """Return the length of each sequence (batch) from cu_seqlens (batch + 1), in the same dtype.

    lengths_of(cu_seqlens).tolist() is what BlockDiagonalMask.from_seqlens of xformers takes.
    """
    _check_cu_seqlens(cu_seqlens)
    return cu_seqlens.diff()


def cu_seqlens_of(lengths: torch.Tensor) -> torch.Tensor:
    """Return cu_seqlens (batch + 1) from lengths (batch): sums, which begin with 0, in int32.

    FlashInfer calls it qo_indptr or kv_indptr, where keys are packed and not in pages.
    """
    _check_lengths("lengths", lengths)
    return torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()


def page_lists(block_table: torch.Tensor, lengths: torch.Tensor, page_size: int) -> PageLists:
    """Return the pages of each sequence from block_table (batch, most_pages).

    lengths (batch): the keys of each sequence; with new keys seqused_k + k_new.shape[1], as the
    table has their pages already. Entries behind a sequence's pages are not read.
    """
    _check_table(block_table, lengths, page_size)
    pages = _pages(lengths, page_size)
    column = torch.arange(block_table.shape[1], device=block_table.device)
    last = torch.where(lengths > 0, (lengths - 1) % page_size + 1, 0)
    return PageLists(cu_seqlens_of(pages), block_table[column < pages[:, None]].int(), last.int())


def slots_of(
    block_table: torch.Tensor, lengths: torch.Tensor, page_size: int, start: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the slot of each key (total), int64, from block_table (batch, most_pages).

    A slot is page * page_size + the place in the page: a row of the cache with its first two
    dimensions as one. The result has the keys from start (batch), by default 0, to lengths, one
    sequence behind the other.

    SGLang's kv_indices are slots_of(block_table, seqused_k, page_size), with kv_indptr =
    cu_seqlens_of(seqused_k). The slot_mapping of vLLM for new keys is
    slots_of(block_table, seqused_k + new, page_size, start=seqused_k).
    """
    _check_table(block_table, lengths, page_size)
    if start is None:
        start = torch.zeros_like(lengths)
    _check_lengths("start", start)
    if start.shape != lengths.shape:
        raise ValueError(f"start has shape {_shape(start)}: should be {_shape(lengths)}, as lengths has")
    if bool((start > lengths).any()):
        i = int((start > lengths).nonzero()[0])
        raise ValueError(f"start[{i}] is {int(start[i])}: should be at most lengths[{i}], {int(lengths[i])}")
    count = lengths - start
    sequence, position = rows_of(cu_seqlens_of(count), int(count.sum()))
    position = position + start[sequence]
    return block_table[sequence, position // page_size].long() * page_size + position % page_size


def rows_of(cu_seqlens: torch.Tensor, total: int) -> Rows:
    """Return the sequence and the position of each of `total` rows, from cu_seqlens (batch + 1).

    Rows behind cu_seqlens[-1] belong to no sequence and have -1. `sequence` is what others call
    segment ids, or batch_indices; FlashInfer's positions of new keys are
    position + seqused_k[sequence].
    """
    lengths = lengths_of(cu_seqlens)
    own = int(cu_seqlens[-1])
    if total < own:
        raise ValueError(f"total is {total}: should be at least cu_seqlens[-1], {own}")
    sequence = torch.arange(len(lengths), device=cu_seqlens.device).repeat_interleave(lengths.long())
    position = torch.arange(own, device=cu_seqlens.device) - cu_seqlens.long()[sequence]
    return Rows(*(torch.nn.functional.pad(x, (0, total - own), value=-1) for x in (sequence, position)))


def ragged_offsets(cu_seqlens: torch.Tensor, *sizes: int) -> torch.Tensor:
    """Return where each sequence begins, in elements, from cu_seqlens (batch + 1).

    The result is (batch + 1, 1, 1, 1), int64, as cuDNN takes it in set_ragged_offset. sizes: the
    dimensions of a row: nheads, headdim for q; nheads_k, headdim_v for v; nheads for stats.
    """
    _check_cu_seqlens(cu_seqlens)
    row = 1
    for size in sizes:
        row *= size
    return (cu_seqlens.long() * row).view(-1, 1, 1, 1)


def packed(x: torch.Tensor, lengths: torch.Tensor, total: int | None = None) -> torch.Tensor:
    """Return the rows of x (batch, most, ...) that belong to a sequence, (total, ...).

    lengths (batch): how many of its first rows are a sequence's own. total: the number of rows, if
    it is larger than the sum of the lengths; the last ones hold 0. Autograd differentiates it.
    """
    _check_lengths("lengths", lengths)
    if x.ndim < 2 or x.shape[0] != len(lengths):
        raise ValueError(f"x has shape {_shape(x)}: should be ({len(lengths)}, most, ...), for {len(lengths)} lengths")
    _check_most(lengths, x.shape[1])
    rows = x[torch.arange(x.shape[1], device=x.device) < lengths[:, None]]
    if total is None or total == len(rows):
        return rows
    if total < len(rows):
        raise ValueError(f"total is {total}: should be at least {len(rows)}, the sum of the lengths")
    return torch.cat([rows, rows.new_zeros(total - len(rows), *rows.shape[1:])])


def padded(x: torch.Tensor, cu_seqlens: torch.Tensor, most: int, fill: float = 0.0) -> torch.Tensor:
    """Return x (total, ...) as (batch, most, ...), with `fill` behind each sequence.

    cu_seqlens (batch + 1): where the sequences begin in x. Autograd differentiates it. An lse
    (nheads, total) becomes (batch, nheads, most) by padded(lse.mT, cu_seqlens, most, -math.inf).mT.
    """
    lengths = lengths_of(cu_seqlens)
    if x.ndim < 1 or x.shape[0] < int(cu_seqlens[-1]):
        raise ValueError(f"x has shape {_shape(x)}: should have at least cu_seqlens[-1], {int(cu_seqlens[-1])}, rows")
    _check_most(lengths, most)
    own = torch.arange(most, device=x.device) < lengths[:, None]
    return x.new_full((*own.shape, *x.shape[1:]), fill).index_put((own,), x[: int(cu_seqlens[-1])])


def _pages(lengths: torch.Tensor, page_size: int) -> torch.Tensor:
    """Return how many pages each sequence needs."""
    return (lengths + page_size - 1) // page_size


def _check_lengths(name: str, lengths: torch.Tensor) -> None:
    _check_integers(name, lengths, 1)
    if bool((lengths < 0).any()):
        i = int((lengths < 0).nonzero()[0])
        raise ValueError(f"{name}[{i}] is {int(lengths[i])}: should be 0 or more")


def _check_cu_seqlens(cu_seqlens: torch.Tensor) -> None:
    _check_integers("cu_seqlens", cu_seqlens, 1)
    if not len(cu_seqlens) or int(cu_seqlens[0]) != 0:
        first = f"begins with {int(cu_seqlens[0])}" if len(cu_seqlens) else "is empty"
        raise ValueError(f"cu_seqlens {first}: should begin with 0")
    if bool((cu_seqlens.diff() < 0).any()):
        i = int((cu_seqlens.diff() < 0).nonzero()[0])
        raise ValueError(
            f"cu_seqlens[{i + 1}] is {int(cu_seqlens[i + 1])}: should be at least cu_seqlens[{i}], {int(cu_seqlens[i])}"
        )


def _check_table(block_table: torch.Tensor, lengths: torch.Tensor, page_size: int) -> None:
    """Raise ValueError unless the table has a page for each key."""
    _check_integers("block_table", block_table, 2)
    _check_lengths("lengths", lengths)
    if page_size < 1:
        raise ValueError(f"page_size is {page_size}: should be 1 or more")
    if len(block_table) != len(lengths):
        raise ValueError(f"block_table has {len(block_table)} rows: should have one for each of {len(lengths)} lengths")
    pages = _pages(lengths, page_size)
    if bool((pages > block_table.shape[1]).any()):
        i = int((pages > block_table.shape[1]).nonzero()[0])
        raise ValueError(
            f"block_table has {block_table.shape[1]} columns: should have {int(pages[i])}, as sequence {i} has "
            f"{int(lengths[i])} keys in pages of {page_size}"
        )
    column = torch.arange(block_table.shape[1], device=block_table.device)
    free = (block_table < 0) & (column < pages[:, None])
    if bool(free.any()):
        i, j = free.nonzero()[0].tolist()
        raise ValueError(
            f"block_table[{i}, {j}] is {int(block_table[i, j])}: should be a page, as sequence {i} has keys there"
        )


def _check_most(lengths: torch.Tensor, most: int) -> None:
    longest = int(lengths.max()) if len(lengths) else 0
    if most < longest:
        raise ValueError(f"there is room for {most} rows of each sequence: should be {longest} or more, the longest")


def _check_integers(name: str, tensor: torch.Tensor, ndim: int) -> None:
    if tensor.dtype not in INTEGERS or tensor.ndim != ndim:
        dtype = str(tensor.dtype).removeprefix("torch.")
        shape = "(batch, most_pages)" if ndim == 2 else "(batch)" if name != "cu_seqlens" else "(batch + 1)"
        raise ValueError(f"{name} is {dtype} of shape {_shape(tensor)}: should be int32 or int64 of shape {shape}")


def _shape(tensor: torch.Tensor) -> str:
    return f"({', '.join(map(str, tensor.shape))})"
