"""Dropout divides by the sum of the remaining weights, so they are not scaled by 1 / (1 - p).

number: 105
package: trinix 0.1.4
law: none: dropout cannot be declared
case: one key, dropout_p=0.5: out should be 2 v or 0, and is v or NaN
consequence: Training with dropout differs from PyTorch's, and rows of few keys may be NaN.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: 64 of 64 outputs are neither 0 nor 2 v
"""

import torch
from trinix import triton_attn_func

torch.manual_seed(0)
q, k, v = (torch.ones(1, 1, 64, 64, device="cuda", dtype=torch.float16) for _ in range(3))
out = triton_attn_func(q, k, v, dropout_p=0.5)[0, 0, :, 0]  # of 64 heads
wrong = (~((out == 0) | (out == 2))).sum().item()
assert wrong == 0, f"{wrong} of 64 outputs are neither 0 nor 2 v"
