"""q, k and v are cast to float16, so bfloat16 values above 65504 become infinite.

number: 18
package: cuda-triton-multiarch 0.1.3
law: none: the adapter declares float16 only
case: one key of 65536 in bfloat16
consequence: bfloat16 is documented, but its range is not available.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: out is inf, should be 65536.0
"""

import torch
from kernels import flash_attention_bhsd

q = torch.ones(1, 1, 64, 64, device="cuda", dtype=torch.bfloat16)
v = 65536 * q
out = flash_attention_bhsd(q, q, v)[0, 0, 0, 0].item()
assert out == 65536, f"out is {out}, should be 65536.0"
