"""In paged_attention, page offsets have 32 bits: pages past 2^31 elements are read from elsewhere.

number: 11
package: conch-triton-kernels 1.3
law: pages_may_lie_far_apart
case: batch=1 nheads=3 nheads_k=3 seqlen_q=1 seqlen_k=1 headdim=64 dtype=float32
consequence: A half-precision cache of more than 4 GiB is read at wrong places, or outside of its
    memory.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: out is 0.0, should be 1
"""

import torch
from conch.ops.attention.paged_attention import paged_attention

cache = torch.zeros(2**20 + 1, 32, 1, 128, device="cuda", dtype=torch.float16)  # 8 GiB
cache[2**20] = 1  # its offset, 2^32, wraps to page 0
table = torch.tensor([[2**20]], device="cuda", dtype=torch.int32)
lengths = torch.tensor([32], device="cuda", dtype=torch.int32)
out = paged_attention(cache[:1, 0], cache, cache, table, lengths)
assert (out == 1).all(), f"out is {out.mean().item()}, should be 1"
