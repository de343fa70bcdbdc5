"""A scale of 0 gives NaN if 64 does not divide the length: hidden scores are 0 * -inf.

number: 61
package: flashnn 0.1.1
law: scale_zero_is_q_zero, negative_scale_is_negated_q
case: seqlen_q=1 seqlen_k=1 headdim=64 dtype=float16 softmax_scale=0.0
consequence: sm_scale is documented without a range. Negative scales give NaN, too.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: out is off by nan
"""

import torch
from flashnn import FlashAttention

torch.manual_seed(0)
q, k, v = (torch.randn(1, 32, 1, 64, device="cuda", dtype=torch.float16) for _ in range(3))
out = FlashAttention()(q, k, v, False, sm_scale=0.0)
error = (out - v.double().mean(1, keepdim=True)).abs().max().item()
assert error < 0.01, f"out is off by {error:.2f}"
