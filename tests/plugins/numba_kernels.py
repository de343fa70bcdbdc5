"""A plug-in in Numba that does not mention the emulator: one thread for each query.

A second implementation lacks a barrier: RACE continues with the next keys while slower warps still
multiply with the previous ones.
"""

import functools
import math

import torch
from numba import cuda, float32

from flash_attest import Implementation, Supports

ROWS, KEYS = 64, 4  # queries of a block, which are its threads; keys in shared memory at a time


@functools.cache
def make_attend(headdim, race):
    @cuda.jit
    def attend(q, k, v, out, scale):
        """Compute attention of (batch, seqlen, nheads, headdim). The grid is (tiles of queries,
        nheads, batch).
        """
        k_tile = cuda.shared.array((KEYS, headdim), float32)
        v_tile = cuda.shared.array((KEYS, headdim), float32)
        acc = cuda.local.array(headdim, float32)
        t, h, b = cuda.threadIdx.x, cuda.blockIdx.y, cuda.blockIdx.z
        row, seqlen = cuda.blockIdx.x * ROWS + t, k.shape[1]
        for d in range(headdim):
            acc[d] = 0
        largest, total = float32(-math.inf), float32(0)
        for first in range(0, seqlen, KEYS):
            for i in range(t, KEYS * headdim, ROWS):
                j, d = i // headdim, i % headdim
                k_tile[j, d] = k[b, first + j, h, d] if first + j < seqlen else 0
                v_tile[j, d] = v[b, first + j, h, d] if first + j < seqlen else 0
            cuda.syncthreads()
            if row < q.shape[1]:
                for j in range(min(KEYS, seqlen - first)):
                    score = float32(0)
                    for d in range(headdim):
                        score += float32(q[b, row, h, d]) * k_tile[j, d]
                    score *= scale
                    new = max(largest, score)
                    fade, p = math.exp(largest - new), math.exp(score - new)
                    largest, total = new, total * fade + p
                    for d in range(headdim):
                        acc[d] = acc[d] * fade + p * v_tile[j, d]
            if not race:
                cuda.syncthreads()
        if row < q.shape[1]:
            for d in range(headdim):
                out[b, row, h, d] = acc[d] / total

    return attend


def forward(q, k, v, race=False):
    batch, seqlen, heads, headdim = q.shape
    if not q.shape == k.shape == v.shape or not q.dtype == k.dtype == v.dtype:
        raise ValueError("q, k and v must have the same shape and dtype")
    out = torch.empty_like(q)
    blocks = math.ceil(seqlen / ROWS), heads, batch
    # Numba's default stream is not the stream that PyTorch uses under torch.cuda.stream.
    stream = torch.cuda.current_stream(q.device).cuda_stream if q.is_cuda else 0
    launch = make_attend(headdim, race)[blocks, ROWS, cuda.external_stream(stream) if stream else 0]
    launch(q, k, v, out, float32(headdim**-0.5))
    return out


def racy(q, k, v):
    return forward(q, k, v, race=True)


SUPPORTS = Supports(dtypes={torch.float32, torch.float16}, headdims={16, 32})
IMPLS = [
    Implementation(name="right", forward=forward, supports=SUPPORTS, traced=True, devices={"cpu", "cuda"}, share=0.1),
    Implementation(name="racy", forward=racy, supports=SUPPORTS, traced=True, devices={"cpu", "cuda"}, share=0.1),
]
