"""Beside a left side, the open right side of a window is not open: keys are hidden.

number: 130
package: torch 2.11
law: query_sees_exactly_its_window
case: seqlen_q=3 seqlen_k=1 headdim=64 dtype=float16 window=0:
consequence: The right side ends at max_seqlen_k. With window_size=(left, -1) and more queries than
    keys, varlen_attn gives 0 for queries that see a key.
found: 2026-11-26
status: not reported
gpu: needed, as varlen_attn has no other kernel; seen on an H200
shows: AssertionError: out of the first query is 0.0, should be 1
"""

import torch
from torch.nn.attention.varlen import varlen_attn

q, k = (torch.ones(n, 1, 64, device="cuda", dtype=torch.float16) for n in (3, 1))
starts = [torch.tensor([0, n], device="cuda", dtype=torch.int32) for n in (3, 1)]
out = varlen_attn(q, k, k, *starts, 3, 1, window_size=(0, -1))  # aligned to the right: each query sees the key
first = out[0, 0, 0].item()
assert first == 1, f"out of the first query is {first}, should be 1"
