"""flash_attention_bhsd takes the number of keys from q, so other keys are ignored.

number: 16
package: cuda-triton-multiarch 0.1.3
law: out_matches_the_definition, every_column_of_headdim_matters
case: seqlen_q=64 seqlen_k=128 headdim=64 dtype=float16
consequence: Both lengths are documented. With fewer keys than queries, memory past the end of k is
    read.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: out is off by 0.58
"""

import torch
from kernels import flash_attention_bhsd

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, n, 64, device="cuda", dtype=torch.float16) for n in (64, 128, 128))
want = (q.double() @ k.double().mT / 8).softmax(-1) @ v.double()
error = (flash_attention_bhsd(q, k, v) - want).abs().max().item()
assert error < 0.01, f"out is off by {error:.2f}"
