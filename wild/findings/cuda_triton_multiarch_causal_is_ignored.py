"""flash_attention_bhsd ignores is_causal in its Triton backend.

number: 14
package: cuda-triton-multiarch 0.1.3
law: row_that_sees_one_key_copies_it, hidden_keys_change_no_bit
case: seqlen_q=64 seqlen_k=64 headdim=64 dtype=float16 causal=True
consequence: Without the CUDA extensions, which are built separately, every query sees all keys.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: the first query sees one key, but out differs from its v by 2.17
"""

import torch
from kernels import flash_attention_bhsd

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, 64, 64, device="cuda", dtype=torch.float16) for _ in range(3))
out = flash_attention_bhsd(q, k, v, is_causal=True)
error = (out[:, :, 0] - v[:, :, 0]).abs().max().item()
assert error < 0.01, f"the first query sees one key, but out differs from its v by {error:.2f}"
