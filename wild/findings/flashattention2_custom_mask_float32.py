"""float32, which the README's example passes, does not compile: P is float16, and v is not.

number: 60
package: flashattention2-custom-mask 0.1.1
law: none: a dtype that raises an error breaks the contract before any law
case: batch=1 nheads=1 nheads_k=1 seqlen_q=128 seqlen_k=128 headdim=64 dtype=float32
consequence: The example of the README stops with a compilation error (Triton 3.7.1).
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: float32 does not compile
"""

import torch
from fa2_custom_mask import flash_attention_custom_mask
from triton import CompilationError

q, k, v = (torch.randn(1, 1, 128, 64, device="cuda") for _ in range(3))
mask = torch.randint(0, 2, (1, 1, 128, 128), device="cuda").int()
try:
    flash_attention_custom_mask(q, k, v, mask, 0.125)
except CompilationError:  # Both operands must be same dtype. Got fp16 and fp32
    raise SystemExit("float32 does not compile") from None
