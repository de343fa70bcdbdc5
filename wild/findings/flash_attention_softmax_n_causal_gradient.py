"""The gradient with is_causal=True does not compile: tl.math.max is not in Triton 3.

number: 38
package: flash-attention-softmax-n 0.3.2
law: none: the adapter declares no causal gradient
case: seqlen_q=128 seqlen_k=128 headdim=64 dtype=float16 causal=True
consequence: flash_attention_n_triton cannot be trained with is_causal=True.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AttributeError("module 'triton.language.math' has no attribute 'max'")
"""

import torch
from flash_attention_softmax_n import flash_attention_n_triton

q, k, v = (torch.ones(1, 1, 128, 64, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(3))
flash_attention_n_triton(q, k, v, is_causal=True).sum().backward()
