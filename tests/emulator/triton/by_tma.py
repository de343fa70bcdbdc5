"""Runs kernels with TMA for sm_90, plain and traced, and prints what comes of it as JSON.

    python -m tests.emulator.triton.by_tma

It is a program, because a process emulates one GPU, and tests emulate the default one.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import torch

from flash_attest.emulator import devices
from flash_attest.emulator.triton import activate

if __name__ == "__main__":
    devices.choose(90)
    activate()

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.runtime._allocation import NullAllocator
from triton.tools.tensor_descriptor import TensorDescriptor

from flash_attest.races.tracing import trace

# ---- a product in Gluon: one warp copies, a warpgroup multiplies ---------------------------------

RIGHT, EARLY, NO_WAIT = 0, 1, 2  # of the hand-over of stages


@gluon.jit
def produce(a, b, lefts, rights, full, empty, rounds, STEP: gl.constexpr, STAGES: gl.constexpr, HOW: gl.constexpr):
    for step in range(rounds):
        stage, turn = step % STAGES, step // STAGES
        if HOW != 2:
            mbarrier.wait(empty.index(stage), turn % 2 ^ 1)  # a fresh mbarrier counts as if its last phase were over
        mbarrier.expect(full.index(stage), a.block_type.nbytes + b.block_type.nbytes)
        tma.async_copy_global_to_shared(a, [0, step * STEP], full.index(stage), lefts.index(stage))
        tma.async_copy_global_to_shared(b, [0, step * STEP], full.index(stage), rights.index(stage))


@gluon.jit
def consume(
    out, lefts, rights, full, empty, rounds,
    M: gl.constexpr, N: gl.constexpr, STAGES: gl.constexpr, HOW: gl.constexpr,
):  # fmt: skip
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    sums = gl.zeros((M, N), gl.float32, layout)
    for step in range(rounds):
        stage, turn = step % STAGES, step // STAGES
        mbarrier.wait(full.index(stage), turn % 2)
        if HOW == 1:
            mbarrier.arrive(empty.index(stage), count=1)
        sums = warpgroup_mma(lefts.index(stage), rights.index(stage).permute((1, 0)), sums, is_async=True)
        sums = warpgroup_mma_wait(0, [sums])
        if HOW != 1:
            mbarrier.arrive(empty.index(stage), count=1)
    result = gl.allocate_shared_memory(out.dtype, [M, N], out.layout, sums.to(out.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(out, [0, 0], result)
    tma.store_wait(0)


@gluon.jit
def matmul(
    a, b, out, rounds, M: gl.constexpr, N: gl.constexpr, STEP: gl.constexpr, STAGES: gl.constexpr, HOW: gl.constexpr
):
    """out (M, N) = a b^T, for a (M, K) and b (N, K), in `rounds` steps of K."""
    lefts = gl.allocate_shared_memory(a.dtype, [STAGES, M, STEP], a.layout)
    rights = gl.allocate_shared_memory(b.dtype, [STAGES, N, STEP], b.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (consume, (out, lefts, rights, full, empty, rounds, M, N, STAGES, HOW)),
            (produce, (a, b, lefts, rights, full, empty, rounds, STEP, STAGES, HOW)),
        ],
        [1],
        [24],
    )


def by_gluon(how: int) -> tuple[Callable[[], None], torch.Tensor, torch.Tensor]:
    """Return the launch, its result, and the result that it should have."""
    m, n, step, rounds = 64, 32, 64, 5
    a, b = (draws(rows, step * rounds) for rows in (m, n))
    out = torch.zeros(m, n, dtype=torch.float16)
    described = [
        GluonDescriptor.from_tensor(x, block, gl.NVMMASharedLayout.get_default_for(block, gl.float16))
        for x, block in ((a, [m, step]), (b, [n, step]), (out, [m, n]))
    ]
    return lambda: matmul[(1,)](*described, rounds, m, n, step, 2, how, num_warps=4), out, a.double() @ b.double().T


# ---- attention in Triton, which divides the loop among warps -------------------------------------


@triton.jit
def attention(
    q_desc, k_desc, v_desc, out_desc, seqlen_k, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, RANK: tl.constexpr
):
    """Write out (M, D) of one head without a scale. RANK: of the descriptors."""
    q = (q_desc.load([0, 0, 0, 0]) if RANK == 4 else q_desc.load([0, 0, 0])).reshape(M, D)
    m, l, acc = tl.full((M,), -float("inf"), tl.float32), tl.zeros((M,), tl.float32), tl.zeros((M, D), tl.float32)
    for start in tl.range(0, seqlen_k, N, warp_specialize=True, num_stages=2):
        k = (k_desc.load([0, start, 0, 0]) if RANK == 4 else k_desc.load([0, start, 0])).reshape(N, D)
        s = tl.dot(q, k.T) * 1.4426950408889634
        s = tl.where(start + tl.arange(0, N)[None, :] < seqlen_k, s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p, alpha = tl.exp2(s - m_new[:, None]), tl.exp2(m - m_new)
        l = l * alpha + tl.sum(p, 1)
        v = (v_desc.load([0, start, 0, 0]) if RANK == 4 else v_desc.load([0, start, 0])).reshape(N, D)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        m = m_new
    out = (acc / l[:, None]).to(tl.float16)
    if RANK == 4:
        out_desc.store([0, 0, 0, 0], out.reshape(1, M, 1, D))
    else:
        out_desc.store([0, 0, 0], out.reshape(1, M, D))


def by_triton(rank: int) -> tuple[Callable[[], None], torch.Tensor, torch.Tensor]:
    """Return the launch, its result, and the result that it should have."""
    m, n, d, seqlen_k = 64, 64, 64, 300
    q, k, v = draws(m, d), draws(seqlen_k, d), draws(seqlen_k, d)
    out = torch.zeros(m, d, dtype=torch.float16)

    def described(x: torch.Tensor, rows: int) -> TensorDescriptor:
        shape, block = ([1, len(x), 1, d], [1, rows, 1, d]) if rank == 4 else ([1, len(x), d], [1, rows, d])
        return TensorDescriptor(x, shape, list(x.view(shape).stride()), block)

    maps = described(q, m), described(k, n), described(v, n), described(out, m)
    want = (q.double() @ k.double().T).softmax(-1) @ v.double()
    return lambda: attention[(1,)](*maps, seqlen_k, m, n, d, rank, num_warps=4), out, want


# ---- a product by descriptors that the kernel makes ----------------------------------------------


@triton.jit
def matmul_by_own(
    a,
    b,
    out,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PROGRAMS: tl.constexpr,
    APART: tl.constexpr,
):
    """out (M, N) = a b^T, for a (M, K) and b (N, K), tile by tile. APART: some warps only copy."""
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    right = tl.make_tensor_descriptor(b, [N, K], [K, 1], [BN, BK])
    to = tl.make_tensor_descriptor(out, [M, N], [N, 1], [BM, BN])
    across = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * across, PROGRAMS, warp_specialize=APART):
        i, j = tile // across * BM, tile % across * BN
        sums = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            sums = tl.dot(left.load([i, k]), right.load([j, k]).T, sums)
        to.store([i, j], sums.to(tl.float16))


def allocated(size: int, align: int, stream: int | None) -> torch.Tensor:
    return torch.empty(size, dtype=torch.int8)


def without_an_allocator() -> str:
    """Return what a launch of a kernel raises that needs memory for its descriptors."""
    launch, _, _ = by_own(False)
    triton.set_allocator(NullAllocator())
    try:
        launch()
    except RuntimeError as error:
        return str(error)
    finally:
        triton.set_allocator(allocated)
    return ""


def by_own(apart: bool) -> tuple[Callable[[], None], torch.Tensor, torch.Tensor]:
    """Return the launch, its result, and the result that it should have."""
    m, n, k = 150, 72, 96
    a, b, out = draws(m, k), draws(n, k), torch.zeros(m, n, dtype=torch.float16)
    triton.set_allocator(allocated)
    call = lambda: matmul_by_own[(2,)](a, b, out, m, n, k, 64, 32, 32, 2, apart, num_warps=4)  # noqa: E731
    return call, out, a.double() @ b.double().T


# ---- what they do --------------------------------------------------------------------------------


def draws(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).half()


def told(launch: Callable[[], None], out: torch.Tensor, want: torch.Tensor) -> dict:
    """Return what comes of a launch."""
    error = ""
    try:
        launch()
    except RuntimeError as raised:
        error = str(raised)
    wrong = (out.double() - want).abs().max().item()
    wrong /= want.abs().max().item()
    return {"wrong by": wrong, "raised": error, "findings": [str(finding) for finding in trace(launch, limit=10.0)]}


if __name__ == "__main__":
    torch.set_num_threads(1)
    kernels = {
        "matmul": by_gluon(RIGHT), "matmul, released too early": by_gluon(EARLY), "matmul, no wait": by_gluon(NO_WAIT),
        "rank 3": by_triton(3), "rank 4": by_triton(4), "own": by_own(False), "own, warps apart": by_own(True),
    }  # fmt: skip
    all_told = {name: told(*kernel) for name, kernel in kernels.items()}
    print(json.dumps(all_told | {"no allocator": {"raised": without_an_allocator()}}))
