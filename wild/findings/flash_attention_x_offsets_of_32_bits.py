"""Offsets have 32 bits: if batches are 2^30 elements apart, the third is read from elsewhere.

number: 55
package: flash_attention_x 0.0.1
law: offsets_need_64_bits
case: seqlen_q=4 seqlen_k=4 headdim=64 dtype=float16, rows 2^30 elements apart
consequence: Tensors that span 2^31 elements or more give wrong results, or an illegal access.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: out is off by 3.74
"""

import torch
from flash_attention_x import flash_attn

torch.manual_seed(0)
buffer = torch.zeros(2**32 + 2048, device="cuda", dtype=torch.float16)  # 8 GiB
x = buffer.as_strided((3, 1, 32, 64), (2**30, 64, 64, 1), 2**31)
x.copy_(torch.randn(3, 1, 32, 64))
want = (x.double() @ x.double().mT / 8).softmax(-1) @ x.double()
error = (flash_attn(x, x, x) - want).abs().max().item()
assert error < 0.01, f"out is off by {error:.2f}"
