"""Decoding from pages, and merging parts, on tensors: checks, allocates, launches, returns.

Nothing here reads a length or a table on the host, so that calls do not wait for the GPU and CUDA
graphs capture them.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass

import torch
from triton import cdiv, next_power_of_2

from flash_attest.impls.contract.arguments import (
    LARGEST_SIZE,
    check_dtypes,
    check_headdim,
    check_heads,
    check_like,
    check_one_device,
    check_options,
    check_sinks,
    check_softcap,
    check_tensor,
    check_window,
    unit_stride,
)

from .decode import append_kernel, decode_kernel
from .device import EMULATED
from .merge import merge_kernel
from .problem import DTYPES, LARGEST_HEADDIM, aligned, check_device, strides_of
from .tiles import EITHER
from .tuning import Tile


@dataclass(frozen=True)
class PagedDecode:
    """Attention of short queries to a paged cache. largest: the largest supported head dim."""

    largest: int = LARGEST_HEADDIM

    def forward(
        self, q, k, v, *, cu_seqlens_q, max_seqlen_q, block_table, seqused_k, max_seqlen_k=None, k_new=None, v_new=None,
        num_splits=1, causal=False, window=None, softmax_scale=None, softcap=None, sinks=None,
    ):  # fmt: skip
        """q (total_q, h, d), k (pages, page_size, hk, d), v (.., dv) -> out (total_q, h, dv), lse.

        cu_seqlens_q (batch + 1): sequence b has the queries from cu_seqlens_q[b] to the next one,
        at most max_seqlen_q. Its keys are the first seqused_k[b] rows of the pages block_table[b].
        max_seqlen_k is not used. k_new, v_new (batch, append, hk, ..) are first written behind the
        keys, into k and v. The keys are split into num_splits parts. lse (h, total_q) is float32.
        Rows of q that belong to no sequence have undefined results.

        Raises ValueError for invalid arguments, before any launch.
        """
        _check_paged(q, k, v, cu_seqlens_q, block_table, seqused_k, k_new, v_new, self.largest)
        check_options(causal, softmax_scale, "bottom_right")
        check_window(window)
        check_softcap(softcap)
        check_sinks(sinks, q.shape[1], q.device)
        for name, number in (("max_seqlen_q", max_seqlen_q), ("num_splits", num_splits)):
            _check_count(name, number, least=int(name == "num_splits"))
        (total_q, nheads, headdim), (_, page_size, nheads_k, headdim_v) = q.shape, v.shape
        q, block_table, batch = unit_stride(q), block_table.contiguous(), len(seqused_k)
        append = 0 if k_new is None else k_new.shape[1]
        with torch.cuda.device_of(q):
            if append:
                self._append(k, v, unit_stride(k_new), unit_stride(v_new), block_table, seqused_k)
            group = nheads // max(nheads_k, 1)
            left, right = (None, None) if window is None else window
            tile = _tile(group, q.element_size(), max(headdim, headdim_v))
            tiles = cdiv(max_seqlen_q * group, tile.BLOCK_M)
            out = q.new_empty(num_splits, 1, total_q, nheads, headdim_v, dtype=torch.float32)
            lse = q.new_empty(num_splits, 1, nheads, total_q, dtype=torch.float32)
            decode_kernel[batch * nheads_k * tiles * num_splits,](
                q, k, v, out, lse, cu_seqlens_q.contiguous(), seqused_k.contiguous(), block_table,
                headdim**-0.5 if softmax_scale is None else float(softmax_scale), float(softcap or 0.0),
                strides_of(q[None]), strides_of(k), strides_of(v), nheads, nheads_k, group, total_q,
                block_table.shape[1], page_size, append, _side(left), _side(0 if causal else right),
                tiles, num_splits, headdim, headdim_v,
                BLOCK_D=_padded(headdim), BLOCK_DV=_padded(headdim_v), ALIGN=_align(q, k, v),
                CAP=EITHER.value if EMULATED else int(softcap is not None), WINDOW=EMULATED or left is not None,
                **tile._asdict(),
            )  # fmt: skip
            out, lse = _merge(out, lse, q.dtype, sinks)
        return out[0], lse[0]

    def _append(self, k, v, k_new, v_new, block_table, seqused_k) -> None:
        (batch, append, nheads_k, headdim), headdim_v = k_new.shape, v_new.shape[3]
        append_kernel[batch * nheads_k * append,](
            k_new, v_new, k, v, seqused_k.contiguous(), block_table,
            strides_of(k_new), strides_of(v_new), strides_of(k), strides_of(v),
            nheads_k, block_table.shape[1], k.shape[1], append, headdim, headdim_v,
            BLOCK_D=_padded(max(headdim, headdim_v)), num_warps=1,
        )  # fmt: skip


def merge_parts(out_parts, lse_parts, *, out_dtype, sinks=None):
    """Merge parts: float32 (n, b, sq, h, dv) and (n, b, h, sq) -> out in out_dtype, lse in float32.

    lse is the natural logarithm; a part without keys has lse -inf and any finite out. sinks (h) are
    no part of the parts. Raises ValueError for invalid arguments, before the launch.
    """
    for name, x, words in (
        ("out_parts", out_parts, "(parts, batch, seqlen_q, nheads, headdim_v)"),
        ("lse_parts", lse_parts, "(parts, batch, nheads, seqlen_q)"),
    ):
        check_tensor(name, x)
        if x.dim() != words.count(",") + 1:
            raise ValueError(f"{name} has shape {tuple(x.shape)}: should be {words}")
    parts, batch, seqlen_q, nheads, headdim_v = out_parts.shape
    check_headdim(headdim_v, LARGEST_HEADDIM)
    check_like("out_parts", out_parts, out_parts.shape, torch.float32, out_parts.device)
    check_like("lse_parts", lse_parts, (parts, batch, nheads, seqlen_q), torch.float32, out_parts.device)
    check_sinks(sinks, nheads, out_parts.device)
    check_device(out_parts)
    if parts == 0:
        raise ValueError(f"out_parts has shape {tuple(out_parts.shape)}: should have at least one part")
    if out_dtype not in DTYPES:
        raise ValueError(f"out_dtype is {out_dtype}: should be one of {', '.join(map(str, DTYPES))}")
    with torch.cuda.device_of(out_parts):
        return _merge(out_parts.contiguous(), lse_parts.contiguous(), out_dtype, sinks)


def _merge(out_parts, lse_parts, dtype, sinks):
    parts, batch, seqlen_q, nheads, headdim_v = out_parts.shape
    if EMULATED and sinks is None:  # compiling a second kernel would take longer than running it
        sinks = lse_parts.new_full((nheads,), -torch.inf)
    out, lse = out_parts.new_empty(out_parts.shape[1:], dtype=dtype), torch.empty_like(lse_parts[0])
    block_m = 16
    merge_kernel[batch * nheads * cdiv(seqlen_q, block_m),](
        out_parts, lse_parts, lse if sinks is None else sinks.contiguous(), out, lse,
        parts, batch, seqlen_q, nheads, headdim_v,
        BLOCK_M=block_m, BLOCK_DV=_padded(headdim_v), SINKS=sinks is not None, num_warps=1 if EMULATED else 4,
    )  # fmt: skip
    return out, lse


def _tile(group: int, bytes_: int, headdim: int) -> Tile:
    """Return the tile of a call.

    It depends on nothing that another sequence of the batch could change, or another cut of the
    prompt: products of other tiles may round differently.
    """
    if EMULATED:
        return Tile(16, 32, 1, 2)
    rows = 16 if group <= 16 else 32 if group <= 32 else 64
    keys = 64 if bytes_ * headdim <= 256 else 32
    return Tile(rows, keys, 4, 2 if bytes_ * headdim <= 512 else 1)


def _padded(headdim: int) -> int:
    """Return a head dim padded to a power of two; to one size in the emulator, if it fits."""
    return max(64 if EMULATED else 32, next_power_of_2(headdim))


def _align(q, k, v) -> int:
    """Return the number of elements of a load: 16 bytes if all rows of all tensors allow it."""
    align = 16 // q.element_size()
    wide = q.shape[-1] % align == v.shape[-1] % align == 0 and all(aligned(x) for x in (q[None], k, v))
    return align if wide and not EMULATED else 1


def _side(side: int | None) -> int:
    """Return the number of keys on one side of the diagonal that a query sees."""
    return LARGEST_SIZE if side is None else min(int(side), LARGEST_SIZE)


def _check_count(name: str, x: object, least: int) -> None:
    number = isinstance(x, numbers.Integral) and not isinstance(x, bool)
    if not (number and least <= x <= LARGEST_SIZE):
        raise ValueError(f"{name} is {x!r}: should be an int of at least {least}")


def _check_paged(q, k, v, cu_seqlens_q, block_table, seqused_k, k_new, v_new, largest: int) -> None:
    """Raise ValueError unless these tensors fit together."""
    pool = "(pages, page_size, nheads_k, headdim)"
    for name, x, words in (("q", q, "(total_q, nheads, headdim)"), ("k", k, pool), ("v", v, pool)):
        check_tensor(name, x)
        if x.dim() != words.count(",") + 1:
            raise ValueError(f"{name} has shape {tuple(x.shape)}: should be {words}")
    if k.shape[:3] != v.shape[:3] or k.shape[3] != q.shape[2] or k.shape[1] == 0:
        shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
        raise ValueError(f"{shapes}: k should have q's headdim, and v the pages, page_size and nheads_k of k")
    check_heads(q.shape[1], k.shape[2])
    check_headdim(q.shape[2], largest)
    check_headdim(v.shape[3], largest, " of v")
    check_dtypes(q, k, v, DTYPES)
    check_device(q)
    for name, x in (("k", k), ("v", v)):
        if unit_stride(x) is not x:
            raise ValueError(f"{name} has strides {x.stride()}: should have a last stride of 1, as it is not copied")
    check_tensor("block_table", block_table)
    if block_table.dim() != 2:
        raise ValueError(f"block_table has shape {tuple(block_table.shape)}: should be (batch, most_pages)")
    batch = len(block_table)
    check_like("block_table", block_table, block_table.shape, torch.int32, q.device)
    check_like("cu_seqlens_q", cu_seqlens_q, (batch + 1,), torch.int32, q.device)
    check_like("seqused_k", seqused_k, (batch,), torch.int32, q.device)
    if (k_new is None) != (v_new is None):
        raise ValueError("k_new and v_new should both be given, or neither")
    if k_new is not None:
        check_tensor("k_new", k_new)
        append = k_new.shape[1] if k_new.dim() == 4 else "append"
        check_like("k_new", k_new, (batch, append, *k.shape[2:]), q.dtype, q.device)
        check_like("v_new", v_new, (batch, append, *v.shape[2:]), q.dtype, q.device)
    check_one_device(q=q, k=k, v=v)
