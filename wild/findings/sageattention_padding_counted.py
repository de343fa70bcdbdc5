"""Keys that pad the last tile are counted: with one key, out is v / 64.

number: 88
package: sageattention 1.0.6
law: padding_keys_count_nothing, single_key_is_copied
case: batch=1 nheads=1 nheads_k=1 seqlen_q=1 seqlen_k=1 headdim=64 dtype=float16
consequence: Unless causal, lengths that 64 does not divide give weight to keys that do not exist.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: with one key, out differs from v by 1.97
"""

import torch
from sageattention.core import sageattn

q, k, v = (torch.full((1, 1, 1, 64), 2.0, device="cuda", dtype=torch.float16) for _ in range(3))
error = (sageattn(q, k, v) - v).abs().max().item()
assert error < 0.01, f"with one key, out differs from v by {error:.2f}"
