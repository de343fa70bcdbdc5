"""The backward ignores a float mask, except where it is -100.

number: 68
package: jvp-flash-attention 0.14.0
law: none: the suite hides keys by -inf, the package by -100
case: batch=1 nheads=1 nheads_k=1 seqlen_q=64 seqlen_k=64 headdim=32 dtype=float32 bias=matrix
consequence: Training with a soft mask, such as relative positions, gets wrong gradients.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: dv is off by 1.17
"""

import torch
from jvp_flash_attention.jvp_attention import attention

torch.manual_seed(0)
q, k, v, dout = (torch.randn(1, 1, 64, 32, device="cuda") for _ in range(4))
mask = torch.zeros(1, 1, 64, 64, device="cuda")
mask[..., 0], mask[..., 1:32] = -100, 8
(dv,) = torch.autograd.grad(attention(q, k, v.requires_grad_(), attn_mask=mask), v, dout)
p = ((q.double() @ k.double().mT + mask) / 32**0.5).softmax(-1)  # the mask is scaled, as in its forward
error = (dv - p.mT @ dout.double()).abs().max().item()
assert error < 0.01, f"dv is off by {error:.2f}"
