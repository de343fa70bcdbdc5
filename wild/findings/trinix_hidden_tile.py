"""A row is NaN if the mask hides its first 64 keys, although it sees others.

number: 103
package: trinix 0.1.4
law: biased_attention_matches_the_definition
case: seqlen_q=33 seqlen_k=33 headdim=32 dtype=float16 bias=matrix (if tiles have 32 keys)
consequence: The README's example, which masks the first 64 positions, gives NaN everywhere.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: 8192 of 8192 elements of out are NaN
"""

import torch
from trinix import triton_attn_func

q, k, v = (torch.randn(1, 128, 1, 64, device="cuda", dtype=torch.float16) for _ in range(3))
mask = torch.zeros(128, 128, device="cuda")
mask[:, :64] = -torch.inf
out = triton_attn_func(q, k, v, attn_mask=mask)
nan = out.isnan().sum().item()
assert nan == 0, f"{nan} of {out.numel()} elements of out are NaN"
