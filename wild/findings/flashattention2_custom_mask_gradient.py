"""The gradient of q skips tiles, here with 256 queries and keys.

number: 56
package: flashattention2-custom-mask 0.1.1
law: gradients_match_the_definition
case: batch=1 nheads=1 nheads_k=1 seqlen_q=256 seqlen_k=256 headdim=64 dtype=float16
consequence: Training gets wrong gradients from length 256 on, unless the mask is causal. The
    forward is right.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: dq is off by 0.37
"""

import torch
from fa2_custom_mask import flash_attention_custom_mask

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, 256, 64, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(3))
dout = torch.randn(1, 1, 256, 64, device="cuda", dtype=torch.float16)
(dq,) = torch.autograd.grad(flash_attention_custom_mask(q, k, v, None, 0.125), q, dout)
out = (q.double() @ k.double().mT * 0.125).softmax(-1) @ v.double()
(right,) = torch.autograd.grad(out, q, dout.double())
error = (dq - right).abs().max().item()
assert error < 0.01, f"dq is off by {error:.2f}"
