"""Gradients are inference tensors: changing one in place raises an error.

number: 49
package: flash_attention_triton 0.1.1
law: contract_is_kept
case: batch=1 nheads=1 nheads_k=1 seqlen_q=64 seqlen_k=64 headdim=64 dtype=float16
consequence: Code that changes such a gradient in place, as in `dq.mul_(0.5)`, raises an error.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: RuntimeError: Inplace update to inference tensor outside InferenceMode is not allowed.
"""

import torch
from flash_attention_triton import flash_attention_v2

q, k, v = (torch.randn(1, 1, 64, 64, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(3))
(dq,) = torch.autograd.grad(flash_attention_v2(q, k, v).sum(), q)
dq.mul_(0.5)
