"""The backward reads k and v by the strides of q, so gradients are wrong if theirs differ.

number: 26
package: fastflash-attention 0.2.0
law: calls_outside_the_promise_raise_or_are_right, any_layout_equals_the_contiguous_one
case: batch=1 nheads=1 nheads_k=1 seqlen_q=2 seqlen_k=2 headdim=64 dtype=bfloat16 layout=mixed
consequence: Training with k and v from one projection gets wrong gradients, without an error.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: dq is off by 1.53
"""

import torch
from fastflash_attention import fast_attention
from torch.nn.functional import scaled_dot_product_attention

torch.manual_seed(0)
q, dout = (torch.randn(1, 2, 64, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
k, v = torch.randn(1, 2, 64, 128, device="cuda", dtype=torch.bfloat16).chunk(2, -1)
(dq,) = torch.autograd.grad(fast_attention(q, k, v), q, dout)
(right,) = torch.autograd.grad(scaled_dot_product_attention(q.double(), k.double(), v.double()), q, dout.double())
error = (dq - right).abs().max().item()
assert error < 0.05, f"dq is off by {error:.2f}"
