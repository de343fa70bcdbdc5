"""With head dim 128, the Triton backend uses the first 64 columns of q and k only.

number: 15
package: cuda-triton-multiarch 0.1.3
law: none: the adapter declares headdim 64 only
case: seqlen_q=64 seqlen_k=64 headdim=128 dtype=float16
consequence: Results are wrong for head dims above 64, and columns of out from 64 on are not
    written.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: out is off by 0.67 in the first 64 columns
"""

import torch
from kernels import flash_attention_bhsd

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, 64, 128, device="cuda", dtype=torch.float16) for _ in range(3))
want = (q.double() @ k.double().mT / 128**0.5).softmax(-1) @ v.double()
error = (flash_attention_bhsd(q, k, v) - want)[..., :64].abs().max().item()
assert error < 0.01, f"out is off by {error:.2f} in the first 64 columns"
