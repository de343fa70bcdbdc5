"""A row's sum is kept in the dtype of out: in bfloat16 with pages of 16, it stops at 4,096.

number: 12
package: conch-triton-kernels 1.3
law: none: an implementation that declares such sums is within its budget
case: batch=1 nheads=1 nheads_k=1 seqlen_q=2 seqlen_k=16384 headdim=64 dtype=bfloat16
consequence: In long contexts, late keys get weight that belongs to early ones.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: out is 1.0, should be 0.5
"""

import torch
from conch.ops.attention.varlen_attention import varlen_attention

pages, lengths = 1024, torch.tensor([16384], device="cuda", dtype=torch.int32)
q, k = torch.zeros(2, 1, 64, device="cuda").bfloat16(), torch.zeros(pages, 16, 1, 64, device="cuda").bfloat16()
v = k.clone()
v[pages // 2 :] = 1  # the second half of the keys; all scores are 0
table, cu = torch.arange(pages, device="cuda").int()[None], torch.tensor([0, 2], device="cuda").int()
out = varlen_attention(q, k, v, cu, 2, lengths, 16384, table).float().mean().item()
assert abs(out - 0.5) < 0.01, f"out is {out}, should be 0.5"
