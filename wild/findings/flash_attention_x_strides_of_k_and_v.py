"""k is read by the strides of v, and v by the strides of k.

number: 53
package: flash_attention_x 0.0.1
law: any_layout_equals_the_contiguous_one
case: seqlen_q=32 seqlen_k=32 headdim=64 dtype=float16, k with gaps between rows
consequence: If the strides of k and v differ, other memory is read, without an error.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: out is off by nan
"""

import torch
from flash_attention_x import flash_attn

torch.manual_seed(0)
q, v = (torch.randn(1, 1, 32, 64, device="cuda", dtype=torch.float16) for _ in range(2))
k = torch.randn(1, 1, 64, 64, device="cuda", dtype=torch.float16)[:, :, ::2]  # every second row
want = (q.double() @ k.double().mT / 8).softmax(-1) @ v.double()
error = (flash_attn(q, k, v) - want).abs().max().item()
assert error < 0.01, f"out is off by {error:.2f}"
