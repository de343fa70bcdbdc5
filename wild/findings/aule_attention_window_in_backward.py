"""The backward ignores window_size.

number: 3
package: aule-attention 0.5.0
law: gradients_match_the_definition
case: seqlen_q=3 seqlen_k=2 headdim=64 dtype=float32 causal=True window=1: regime=shifted_down
consequence: Training with a window gets wrong gradients, without an error.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: the gradient of the last query reaches keys 0 to 63, should reach 47 to 63
"""

import torch
from aule.triton_flash import flash_attention_triton

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, 64, 64, device="cuda", requires_grad=True) for _ in range(3))
flash_attention_triton(q, k, v, causal=True, window_size=16)[0, 0, -1].sum().backward()
keys = v.grad[0, 0].abs().sum(-1).nonzero().flatten().tolist()
assert keys[0] == 47, f"the gradient of the last query reaches keys {keys[0]} to {keys[-1]}, should reach 47 to 63"
