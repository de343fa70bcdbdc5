"""Keys that pad the last tile are counted: with one key, out is v / 64.

number: 13
package: cuda-triton-multiarch 0.1.3
law: padding_keys_count_nothing, out_matches_the_definition
case: batch=1 nheads=1 nheads_k=1 seqlen_q=1 seqlen_k=1 headdim=64 dtype=float16
consequence: Lengths that 64 does not divide give weight to keys that do not exist.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: with one key, out differs from v by 1.94
"""

import torch
from kernels import flash_attention_bhsd

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, 1, 64, device="cuda", dtype=torch.float16) for _ in range(3))
error = (flash_attention_bhsd(q, k, v) - v).abs().max().item()
assert error < 0.01, f"with one key, out differs from v by {error:.2f}"
