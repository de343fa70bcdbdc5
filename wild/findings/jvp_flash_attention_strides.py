"""The backward compares strides of dimensions of size 1, so it refuses some contiguous tensors.

number: 71
package: jvp-flash-attention 0.14.0
law: any_layout_equals_the_contiguous_one
case: seqlen_q=32 seqlen_k=32 headdim=32 dtype=float32 layout=size_one
consequence: A q of batch 1 that is a contiguous view raises an error, in the backward only.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: backward refuses a contiguous q
"""

import torch
from jvp_flash_attention.jvp_attention import attention

q, k, v = (torch.randn(1, 1, 64, 32, device="cuda") for _ in range(3))
q = q.as_strided(q.shape, (1, 1, 32, 1)).requires_grad_()  # q.is_contiguous() is still True
out, refuses = attention(q, k, v), False
try:
    out.backward(torch.ones_like(k))
except AssertionError:
    refuses = True
assert not refuses, "backward refuses a contiguous q"
