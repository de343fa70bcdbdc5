"""With causal=True, a negative sm_scale makes dq NaN.

number: 119
package: triton-lang/kernels 2024-08-15
law: negative_scale_is_negated_q, scale_zero_is_q_zero
case: seqlen_q=128 seqlen_k=128 headdim=32 dtype=float16 causal=True softmax_scale=-0.25
consequence: Training with a causal mask needs a positive scale, which is not documented. 0 gives
    NaN, too.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: 4095 of 4096 elements of dq are NaN
"""

import os
import sys

import torch

sys.path.insert(0, os.environ["FLASH_ATTEST_WILD_TRITON_LANG_KERNELS"])
from flash_attention import attention

q, k, v = (torch.randn(1, 1, 128, 32, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(3))
attention(q, k, v, True, -0.25).sum().backward()
nans = q.grad.isnan().sum().item()
assert nans == 0, f"{nans} of {q.numel()} elements of dq are NaN"
