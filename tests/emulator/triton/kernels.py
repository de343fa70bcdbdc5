"""Small Triton kernels of one idea each, for test_battery.py."""

import triton
import triton.language as tl


@triton.jit
def row_sum(x, out, N: tl.constexpr):
    row = tl.program_id(0)
    v = tl.load(x + row * N + tl.arange(0, N))
    tl.store(out + row, tl.sum(v, 0))


@triton.jit
def column_sum(x, out, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    tl.store(out + tl.arange(0, N), tl.sum(tl.load(x + i * N + j), 0))


@triton.jit
def softmax(x, out, n, N: tl.constexpr):
    i = tl.arange(0, N)
    at = tl.program_id(0) * n + i
    v = tl.load(x + at, mask=i < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, 0))
    tl.store(out + at, e / tl.sum(e, 0), mask=i < n)


@triton.jit
def layernorm(x, weight, out, n, N: tl.constexpr):
    i = tl.arange(0, N)
    at = tl.program_id(0) * n + i
    v = tl.load(x + at, mask=i < n, other=0.0)
    c = tl.where(i < n, v - tl.sum(v, 0) / n, 0.0)
    scale = 1 / tl.sqrt(tl.sum(c * c, 0) / n + 1e-5)
    tl.store(out + at, c * scale * tl.load(weight + i, mask=i < n), mask=i < n)


@triton.jit
def argmax(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + tl.program_id(0), tl.argmax(tl.load(x + tl.program_id(0) * N + i), 0))


@triton.jit
def transpose(x, out, M: tl.constexpr, N: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    v = tl.load(x + i[:, None] * N + j[None, :])
    tl.store(out + j[:, None] * M + i[None, :], tl.trans(v))


@triton.jit
def matmul(
    a, b, out, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr
):
    i, j, l = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for first in tl.range(0, k, K, num_stages=STAGES):
        left = tl.load(a + i * k + first + l[None, :])
        right = tl.load(b + (first + l[:, None]) * N + j)
        total = tl.dot(left, right, total, input_precision=PRECISION)
    tl.store(out + i * N + j, total)


@triton.jit
def split_k(a, b, out, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, l = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.program_id(0) * K + tl.arange(0, K)
    part = tl.dot(tl.load(a + i * k + l[None, :]), tl.load(b + l[:, None] * N + j))
    tl.atomic_add(out + i * N + j, part)


@triton.jit
def attention(q, k, v, out, n, N: tl.constexpr, D: tl.constexpr):
    i, d = tl.arange(0, N), tl.arange(0, D)
    at = i[:, None] * D + d[None, :]
    s = tl.dot(tl.load(q + at), tl.trans(tl.load(k + at)))
    p = tl.exp(s - tl.max(s, 1)[:, None])
    o = tl.dot((p / tl.sum(p, 1)[:, None]).to(tl.float16), tl.load(v + at))
    tl.store(out + at, o)


@triton.jit
def cumulative_sum(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.cumsum(tl.load(x + i), 0))


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def cumulative_maximum(x, out, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + at, tl.associative_scan(tl.load(x + at), 0, larger))


@triton.jit
def histogram(x, out, N: tl.constexpr, BINS: tl.constexpr):
    tl.store(out + tl.arange(0, BINS), tl.histogram(tl.load(x + tl.arange(0, N)), BINS))


@triton.jit
def sort(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.sort(tl.load(x + i)))


@triton.jit
def flip(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.flip(tl.load(x + i), 0))


@triton.jit
def gather(x, index, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.gather(tl.load(x + i), tl.load(index + i), 0))


@triton.jit
def interleave(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + tl.arange(0, 2 * N), tl.interleave(tl.load(x + i), tl.load(y + i)))


@triton.jit
def total(x, out, N: tl.constexpr):
    v = tl.load(x + tl.program_id(0) * N + tl.arange(0, N))
    tl.atomic_add(out, tl.sum(v, 0))


@triton.jit
def largest(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.atomic_max(out + i % 8, tl.load(x + tl.program_id(0) * N + i))


@triton.jit
def last_one_sums(x, parts, count, out, N: tl.constexpr, BLOCKS: tl.constexpr):
    program = tl.program_id(0)
    tl.atomic_xchg(parts + program, tl.sum(tl.load(x + program * N + tl.arange(0, N)), 0))
    if tl.atomic_add(count, 1) == BLOCKS - 1:
        zero = tl.zeros((BLOCKS,), tl.float32)
        tl.store(out, tl.sum(tl.atomic_add(parts + tl.arange(0, BLOCKS), zero), 0))


@triton.jit
def through_scratch(x, scratch, out, M: tl.constexpr, N: tl.constexpr, BARRIER: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    v = tl.load(x + i[:, None] * N + j[None, :])
    tl.store(scratch + i, tl.sum(v, 1))
    if BARRIER:
        tl.debug_barrier()
    columns = tl.load(scratch + tl.arange(0, M)[None, :])
    tl.store(out + j[:, None] * M + i[None, :], tl.trans(v) / columns)


@triton.jit
def neighbours(x, out, N: tl.constexpr, REACH: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N + REACH)
    tl.store(out + i, tl.load(x + i) + tl.program_id(0))


@triton.jit
def add(x, y, out, n, MASKED: tl.constexpr, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    inside = (i < n) if MASKED else (i >= 0)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=inside)


@triton.jit
def in_place(x, n, SHIFT: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i + SHIFT)
    tl.store(x + i, v + 1)
