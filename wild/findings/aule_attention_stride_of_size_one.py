"""With one head, the backward takes the stride of the head axis for the stride of the batch axis.

number: 5
package: aule-attention 0.5.0
law: any_layout_equals_the_contiguous_one
case: batch=2 seqlen_q=4 seqlen_k=4 headdim=64 dtype=float32 layout=size_one
consequence: A q made as (batch, seqlen, 1, headdim) and then transposed gets wrong gradients of q
    and k.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: dq is off by 0.54
"""

import torch
from aule.triton_flash import flash_attention_triton

torch.manual_seed(0)
k, v, dout = torch.randn(3, 2, 1, 64, 64, device="cuda")
x = torch.randn(2, 64, 1, 64, device="cuda").transpose(1, 2).requires_grad_()  # the head stride is 64
y = x.detach().clone(memory_format=torch.contiguous_format).requires_grad_()  # here it is 4096
dq, same = (torch.autograd.grad(flash_attention_triton(q, k, v, causal=False), q, dout)[0] for q in (x, y))
error = (dq - same).abs().max().item()
assert error < 0.01, f"dq is off by {error:.2f}"
