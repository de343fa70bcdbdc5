"""PagedAttention writes as many heads of out as there are key heads; the others stay unwritten.

number: 63
package: flashnn 0.1.1
law: none: the adapter calls FlashAttention only
case: nheads=2 nheads_k=1, one key, head_mapping=(0, 0)
consequence: With head_mapping for GQA, the out of most heads is what the memory held.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: of 2 heads, 1 has the v of its only key
"""

import torch
from flashnn import PagedAttention

q, pages = (torch.ones(1, n, *s, device="cuda", dtype=torch.float16) for n, s in ((2, (64,)), (1, (16, 64))))
zero, one = (torch.full((1, 1), n, device="cuda", dtype=torch.int32) for n in (0, 1))
out = torch.zeros_like(q)  # a call of PagedAttention() does the same with torch.empty_like
PagedAttention()._triton_impl(out, q, pages, pages, zero.expand(1, 2)[0].clone(), 0.125, zero, one[0])
assert (out == 1).all(), f"of 2 heads, {(out == 1).all(-1).sum()} has the v of its only key"
