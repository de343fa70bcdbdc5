"""A boolean mask is added to the scores as 0 and 1, so it hides nothing.

number: 108
package: trinix 0.1.4
law: calls_outside_the_promise_raise_or_are_right
case: seqlen_q=2 seqlen_k=2 headdim=32 dtype=float16 nheads=3 bias=matrix
consequence: A mask for PyTorch's scaled_dot_product_attention gives other values, without an error.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: out is off by 1.92
"""

import torch
from torch.nn.functional import scaled_dot_product_attention
from trinix import triton_attn_func

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, 64, 64, device="cuda", dtype=torch.float16) for _ in range(3))
mask = torch.ones(64, 64, device="cuda", dtype=torch.bool).tril()
out = triton_attn_func(*(x.transpose(1, 2) for x in (q, k, v)), attn_mask=mask).transpose(1, 2)
right = scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=mask)
error = (out - right).abs().max().item()
assert error < 0.01, f"out is off by {error:.2f}"
