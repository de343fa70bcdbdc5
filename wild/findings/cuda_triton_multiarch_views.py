"""q, k and v that are transposed from (batch, seqlen, nheads, headdim) are read as contiguous.

number: 17
package: cuda-triton-multiarch 0.1.3
law: any_layout_equals_the_contiguous_one
case: seqlen_q=64 seqlen_k=64 headdim=64 dtype=float16 layout=gapped
consequence: Heads that are views, as after a projection, give wrong results, without an error.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: out is off by 0.96
"""

import torch
from kernels import flash_attention_bhsd

torch.manual_seed(0)
q, k, v = (torch.randn(1, 64, 2, 64, device="cuda", dtype=torch.float16).transpose(1, 2) for _ in range(3))
want = (q.double() @ k.double().mT / 8).softmax(-1) @ v.double()
error = (flash_attention_bhsd(q, k, v) - want).abs().max().item()
assert error < 0.01, f"out is off by {error:.2f}"
