"""The gradient of flash_attn_causal does not compile: tl.math.max is not in Triton 3.

number: 54
package: flash_attention_x 0.0.1
law: none: the adapter declares no causal gradient
case: seqlen_q=64 seqlen_k=64 headdim=64 dtype=float16 causal=True
consequence: flash_attn_causal cannot be trained, although the package asks for Triton 2.3 or later.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AttributeError("module 'triton.language.math' has no attribute 'max'")
"""

import torch
from flash_attention_x import flash_attn_causal

q, k, v = (torch.ones(1, 1, 64, 64, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(3))
flash_attn_causal(q, k, v).sum().backward()
