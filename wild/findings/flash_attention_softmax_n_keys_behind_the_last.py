"""With 96 keys in a buffer of 128, the 32 past the last key are counted.

number: 37
package: flash-attention-softmax-n 0.3.2
law: none: the adapter calls with multiples of 128 only
case: seqlen_q=128 seqlen_k=96 headdim=64 dtype=float16
consequence: Numbers of keys that 64 does not divide raise no error, and other memory is read.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: out is off by 0.45
"""

import torch
from flash_attention_softmax_n import flash_attention_n_triton

torch.manual_seed(0)
q, buffer = (torch.randn(1, 1, 128, 64, device="cuda", dtype=torch.float16) for _ in range(2))
k = buffer[:, :, :96]
want = (q.double() @ k.double().mT / 8).softmax(-1) @ k.double()
error = (flash_attention_n_triton(q, k, k) - want).abs().max().item()
assert error < 0.01, f"out is off by {error:.2f}"
