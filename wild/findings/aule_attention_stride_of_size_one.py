"""One head: the backward steps from batch to batch by the stride of the heads.

number: 11
package: aule-attention 0.5.0
law: any_layout_equals_the_contiguous_one
case: batch=2 seqlen_q=4 seqlen_k=4 headdim=64 dtype=float32 layout=size_one
consequence: q made as (b, s, 1, d) and transposed, as models do, has wrong gradients of q and k.
found: 2026-11-25
status: not reported
gpu: seen on an H100
shows: AssertionError: dq is off by 0.54
"""

import torch
from aule.triton_flash import flash_attention_triton

torch.manual_seed(0)
k, v, dout = torch.randn(3, 2, 1, 64, 64, device="cuda")
x = torch.randn(2, 64, 1, 64, device="cuda").transpose(1, 2).requires_grad_()  # stride 64 of the heads
y = x.detach().flatten().view(2, 1, 64, 64).clone().requires_grad_()
dq, same = (torch.autograd.grad(flash_attention_triton(q, k, v, causal=False), q, dout)[0] for q in (x, y))
error = (dq - same).abs().max().item()
assert error < 0.01, f"dq is off by {error:.2f}"
