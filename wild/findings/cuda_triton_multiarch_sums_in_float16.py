"""The sum of a row is kept in float16, so with v = 1, out is not 1.

number: 21
package: cuda-triton-multiarch 0.1.3
law: out_matches_the_definition, order_of_keys_does_not_matter
case: seqlen_q=64 seqlen_k=64 headdim=64 dtype=float16
consequence: flash_attention_full_triton is less exact than rounding to float16 explains.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: out is off by 0.0010
"""

import torch
from kernels.flash_attention_full import flash_attention_full_triton

torch.manual_seed(0)
q, k = (torch.randn(1, 32, 64, 64, device="cuda", dtype=torch.float16) for _ in range(2))
error = (flash_attention_full_triton(q, k, torch.ones_like(q)).double() - 1).abs().max().item()
assert error <= 0.0005, f"out is off by {error:.4f}"
