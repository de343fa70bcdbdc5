"""A float mask is added before the scale, so it is multiplied by 1 / sqrt(headdim) as well.

number: 67
package: jvp-flash-attention 0.14.0
law: none: the suite hides keys by -inf, the package by -100
case: batch=1 nheads=1 nheads_k=1 seqlen_q=64 seqlen_k=64 headdim=32 dtype=float32 bias=matrix
consequence: With head dim 128, the package's own constant for hidden keys, -100, lowers a score by
    only 8.8.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: out is off by 0.41
"""

import torch
from jvp_flash_attention.jvp_attention import attention

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, 64, 32, device="cuda") for _ in range(3))
mask = torch.zeros(1, 1, 64, 64, device="cuda")
mask[..., 0], mask[..., 1:32] = -100, 8
expected = (q.double() @ k.double().mT / 32**0.5 + mask).softmax(-1) @ v.double()  # as in PyTorch
error = (attention(q, k, v, attn_mask=mask) - expected).abs().max().item()
assert error < 0.01, f"out is off by {error:.2f}"
