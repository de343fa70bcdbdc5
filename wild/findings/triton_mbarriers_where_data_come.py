"""A loop that is divided among warps leaves mbarriers in memory where tiles come, not invalidated.

number: 140
package: triton 3.6
law: no_race_is_traced, repeats_agree
case: seqlen_q=498 seqlen_k=509 headdim=128 dtype=float16 batch=2 nheads=3 causal=True
consequence: If several processes share a GPU, results are now and then wrong, by whole tiles: 760
    of 846,000 calls of an attention, and 21 of 6,000 of this product. With `mbarrier.inval`, or
    without the unused mbarriers, none of 549,000 was wrong. In 3.7.1 it is the same. Elsewhere
    Triton invalidates mbarriers, since pull request 3858.
found: 2026-11-27
status: not reported
gpu: needed, for Hopper; seen on an H200
shows: AssertionError: 509 of 20000 results differ from the first
"""

import os

import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def product(a, b, out):
    i, total = triton.language.program_id(0) * 64, triton.language.zeros((64, 128), triton.language.float32)
    for j in triton.language.range(0, 640, 64, warp_specialize=True, num_stages=2):
        total = triton.language.dot(a.load([i, j]), b.load([j, 0]), total)
    out.store([i, 0], total.to(triton.language.float16))


processes = [os.fork() for _ in range(3)]  # eight, each of which does what follows
a, b, out = (torch.randn(n, m, device="cuda").half() for n, m in ((65536, 640), (640, 128), (65536, 128)))
maps = [TensorDescriptor.from_tensor(x, block) for x, block in ((a, [64, 64]), (b, [64, 128]), (out, [64, 128]))]
first = product[(1024,)](*maps, num_warps=4) and out.clone()
wrong = sum((product[(1024,)](*maps, num_warps=4) and out != first).any() for _ in range(20000)).item()
assert wrong == 0, f"{wrong} of 20000 results differ from the first"
