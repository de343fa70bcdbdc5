"""softmax_scale=0 is taken for None, the default scale.

number: 50
package: flash_attention_triton 0.1.1
law: scale_zero_is_q_zero
case: seqlen_q=2 seqlen_k=2 headdim=16 dtype=float16 softmax_scale=0.0
consequence: A scale of 0 gives attention with the default scale, not the mean of the visible keys'
    v.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: out is off by 1.05
"""

import torch
from flash_attention_triton import flash_attention_v2

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, 64, 64, device="cuda", dtype=torch.float16) for _ in range(3))
right = v.double().cumsum(2) / torch.arange(1, 65, device="cuda")[:, None]  # the mean of the keys up to each query
error = (flash_attention_v2(q, k, v, softmax_scale=0.0) - right).abs().max().item()
assert error < 0.01, f"out is off by {error:.2f}"
