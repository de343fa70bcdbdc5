"""Code that all kernels share: loading and storing tiles, and computing scores.

Scores here are S * log2(e), so that P = exp2(s - m), because the fast exponential of the hardware
is exp2. A tensor (batch, seqlen, nheads, headdim) is passed as a pointer and its `Strides`. A
kernel moves the pointer to its (b, h), and so has a matrix (seqlen, headdim), which is divided into
tiles (BLOCK, BLOCK_D).

Offsets that involve a stride have 64 bits: batch * seqlen * nheads * headdim exceeds 2^31 in
practice.
"""

from typing import NamedTuple

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)
INF = tl.constexpr(float("inf"))
PACKED = tl.constexpr(2**62)  # added to every stride
# The least finite score. It does not become -inf if it is multiplied by ln 2 and divided by it
# again.
LEAST = tl.constexpr(-(2.0**127))
EITHER = tl.constexpr(2)  # of CAP: with a cap if softcap is not 0 (Problem.every)

# By default, Triton compiles a kernel for every pattern of pointers divisible by 16. ALIGN replaces
# this (matrix_of).
POINTERS = [
    "q_ptr", "k_ptr", "v_ptr", "bias_ptr", "out_ptr", "lse_ptr", "dout_ptr", "delta_ptr",
    "dq_ptr", "dk_ptr", "dv_ptr", "dbias_ptr", "sinks_ptr", "dlse_ptr", "dsink_ptr",
    "cu_seqlens_q_ptr", "cu_seqlens_k_ptr",
]  # fmt: skip

# Triton should not compile for every length, either. Each kernel has some of these arguments, and
# takes them as plain numbers.
NOT_SPECIALIZED = [
    "scale", "q_strides", "k_strides", "v_strides", "bias_strides", "out_strides", "dout_strides",
    "dq_strides", "dk_strides", "dv_strides", "dbias_strides", "nheads", "nheads_k", "group", "shared_batch",
    "shared_heads", "seqlen_q", "seqlen_k", "total_q", "begin", "diagonal", "headdim", "headdim_v", "softcap", "vector",
    "tuning_key",
]  # fmt: skip


class Strides(NamedTuple):
    """The packed strides of a tensor whose last stride is 1. `row` is for a query or key.

    Triton compiles a kernel for every pattern of integers that are 1, divisible by 16, or need 64
    bits, and elements of a tuple cannot be exempted. Packed strides are all divisible by 16 and
    need 64 bits, so there is only one pattern.
    """

    batch: int
    head: int
    row: int

    @classmethod
    def packed(cls, batch: int, head: int, row: int) -> "Strides":
        """Pack strides in elements, each below 2^58; `elements` unpacks them."""
        base = PACKED.value
        return cls(base + 16 * batch, base + 16 * head, base + 16 * row)


@triton.jit
def sequence_of(b, seqlen, cu_seqlens_ptr, VARLEN: tl.constexpr):
    """Return what leads to sequence b in a tensor of queries or keys (matrix_of), and its length.

    With VARLEN, it is the sequence's first row in (total, heads, headdim), whose Strides.batch is
    the stride of a row. seqlen is then the longest length, and no more than the grid needs.
    """
    if VARLEN:
        first = tl.load(cu_seqlens_ptr + b)
        seqlen = tl.load(cu_seqlens_ptr + b + 1) - first
        b = first
    return b, seqlen


@triton.jit
def diagonals_of(begin, diagonal, seqlen_q, seqlen_k, VARLEN: tl.constexpr):
    """Return a mask's first and last diagonal.

    With VARLEN, they are given relative to the diagonal that ends at the last query and last key,
    and open ones lie so far off that they must be cut before they are moved.
    """
    if VARLEN:
        begin = seqlen_k - seqlen_q + tl.maximum(begin, -seqlen_k)
        diagonal = seqlen_k - seqlen_q + tl.minimum(diagonal, seqlen_q)
    return begin, diagonal


@triton.jit
def statistics_of(bh, h, first, seqlen_q, total_q, VARLEN: tl.constexpr):
    """Return the offset of a head of a sequence in lse and delta: (batch, nheads, seqlen_q), or
    (nheads, total_q) with VARLEN.
    """
    return tl.cast(h, tl.int64) * total_q + first if VARLEN else tl.cast(bh, tl.int64) * seqlen_q


@triton.jit
def elements(packed, ALIGN: tl.constexpr):
    """Unpack a stride.

    The compiler can see that the stride is a multiple of ALIGN, which allows wide loads.
    """
    return (packed - PACKED) // (16 * ALIGN) * ALIGN


@triton.jit
def matrix_of(ptr, strides, b, h, ALIGN: tl.constexpr):
    """Return a pointer to the (seqlen, headdim) matrix of batch b and head h of a tensor."""
    batch, head = elements(strides.batch, ALIGN), elements(strides.head, ALIGN)
    ptr += tl.cast(b, tl.int64) * batch + tl.cast(h, tl.int64) * head
    if ALIGN > 1:  # Triton does not specialise on these pointers, so the alignment is stated here
        ptr = tl.multiple_of(ptr, 16)
    return ptr


@triton.jit
def tile_offsets(first, stride, headdim, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr, ALIGN: tl.constexpr):
    """Return the offsets (BLOCK, BLOCK_D) of rows first .. first + BLOCK, the rows, the columns."""
    stride = elements(stride, ALIGN)
    rows = first + tl.arange(0, BLOCK)[:, None]
    columns = tl.arange(0, BLOCK_D)[None, :]
    offsets = tl.cast(first, tl.int64) * stride + tl.arange(0, BLOCK)[:, None].to(tl.int64) * stride + columns
    return offsets, rows, columns


@triton.jit
def load_tile(
    ptr, first, stride, seqlen, headdim,
    BLOCK: tl.constexpr, BLOCK_D: tl.constexpr, ALIGN: tl.constexpr, TAIL: tl.constexpr,
):  # fmt: skip
    """Load rows first .. first + BLOCK as (BLOCK, BLOCK_D).

    They are zero beyond headdim, and beyond seqlen if the tile may have a TAIL. The load is
    predicated: a mask applied after it would keep 0 * NaN.
    """
    offsets, rows, columns = tile_offsets(first, stride, headdim, BLOCK, BLOCK_D, ALIGN)
    mask = columns < headdim // ALIGN * ALIGN
    if TAIL:
        mask = mask & (rows < seqlen)
    return tl.load(ptr + offsets, mask=mask, other=0.0)


@triton.jit
def store_tile(
    ptr, tile, first, stride, seqlen, headdim,
    BLOCK: tl.constexpr, BLOCK_D: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Write the existing rows and columns of a tile (BLOCK, BLOCK_D) in the tensor's dtype."""
    offsets, rows, columns = tile_offsets(first, stride, headdim, BLOCK, BLOCK_D, ALIGN)
    mask = (rows < seqlen) & (columns < headdim // ALIGN * ALIGN)
    tl.store(ptr + offsets, tile.to(ptr.dtype.element_ty), mask=mask)


@triton.jit
def keys_of_tile(
    i0, seqlen_q, seqlen_k, begin, diagonal,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WINDOW: tl.constexpr, UNMASKED: tl.constexpr,
):  # fmt: skip
    """Return the keys that the queries of the tile at i0 see, as (full, clear, first, last).

    Every query sees the keys full .. clear, which need no mask. The masked loop over first .. last
    does the tiles before `full`, each clear - full further on, and those from `clear` on. So one
    loop has both edges of a window. Without UNMASKED it has every tile.
    """
    clear = tl.maximum(tl.minimum(seqlen_k, i0 + diagonal + 1), 0) // BLOCK_N * BLOCK_N
    last = tl.maximum(tl.minimum(seqlen_k, i0 + diagonal + BLOCK_M), 0)
    full, start = 0, 0
    if WINDOW:
        start = tl.maximum(i0 + begin, 0) // BLOCK_N * BLOCK_N
        last_query = tl.minimum(i0 + BLOCK_M, seqlen_q) - 1
        full = tl.minimum(tl.cdiv(tl.maximum(last_query + begin, 0), BLOCK_N) * BLOCK_N, clear)
    if not UNMASKED:
        full, clear = 0, 0
    return full, clear, start + clear - full, last


@triton.jit
def tanh_of_scores(qk, scale, softcap):
    """Return tanh(R / softcap) of R = scale Q K^T. Its error is absolute, of a rounding of 1."""
    x = qk * scale * (2.0 * LOG2E / softcap)
    return 1.0 - 2.0 / (tl.exp2(x) + 1.0)  # exp2 may overflow: 2 / inf is 0


@triton.jit
def scores(
    qk, bias_ptr, i, j, scale, softcap, bias_row, seqlen_q, seqlen_k, begin, diagonal,
    BIAS: tl.constexpr, CAP: tl.constexpr, WINDOW: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Return S * log2(e) from Q K^T of one tile, -inf where the query does not see the key.

    i and j are query and key indices, shaped to broadcast against qk: (BLOCK_M, 1) and (1,
    BLOCK_N), or the reverse for a transposed tile. Query i sees keys i + begin .. i + diagonal;
    only a WINDOW has a `begin`. A tile in which every query sees every key needs no mask. bias_ptr
    points to (b, h). bias_row is 0 for a vector bias, which has one row.
    """
    s = qk * (scale * LOG2E)
    if CAP:
        capped = tanh_of_scores(qk, scale, softcap) * (softcap * LOG2E)
        s = tl.where(softcap > 0, capped, s) if CAP == EITHER else capped
    if BIAS:
        here = (i < seqlen_q) & (j < seqlen_k)
        bias = tl.load(bias_ptr + i.to(tl.int64) * elements(bias_row, 1) + j, mask=here, other=0.0).to(tl.float32)
        s += tl.where(bias == -INF, -INF, tl.maximum(bias * LOG2E, LEAST))  # finfo.min stays finite
    if MASKED:
        seen = (j < seqlen_k) & (j <= i + diagonal)  # tail mask and causal mask
        if WINDOW:
            seen = seen & (j >= i + begin)
        s = tl.where(seen, s, -INF)
    return s


@triton.jit
def slope_of_cap(qk, scale, softcap, CAP: tl.constexpr):
    """Return the derivative of softcap tanh(R / softcap) by R = scale Q K^T."""
    t = tanh_of_scores(qk, scale, softcap)  # the compiler computes it once, here and in `scores`
    slope = 1.0 - t * t
    return tl.where(softcap > 0, slope, 1.0) if CAP == EITHER else slope


@triton.jit
def product(a, b, PRECISION: tl.constexpr):
    """Return A B in float32.

    For "tf32" the operands are first rounded to nearest, because the matrix unit would truncate
    them.
    """
    if PRECISION == "tf32":
        a, b = to_tf32(a), to_tf32(b)
    return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def to_tf32(x):
    """Round float32 to a float32 whose last 13 bits are 0, half away from zero."""
    return ((x.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)


@triton.jit
def probabilities(s, lse, BIAS: tl.constexpr):
    """Return P = exp2(s - lse), at most 1 even if lse is so large that its rounding matters."""
    x = s - lse
    if BIAS:
        x = tl.where(x > 0, 0.0, x)
    return tl.exp2(x)


@triton.jit
def load_statistic(ptr, i, seqlen_q, PADDING: tl.constexpr):
    """Load lse or delta, one float32 per query, of the queries i; PADDING beyond seqlen_q.

    ptr points to (b, h).
    """
    return tl.load(ptr + i, mask=i < seqlen_q, other=PADDING)


@triton.jit
def load_lse(ptr, i, seqlen_q):
    """Load lse * log2(e), so that P = exp2(s - lse).

    For padding and for rows that see no key it is +inf, so that P = 0.
    """
    lse = load_statistic(ptr, i, seqlen_q, INF)
    return tl.where(lse == -INF, INF, lse * LOG2E)
