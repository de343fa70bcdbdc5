"""With causal=True, the next head's K_scale is read, so NaN in one head gives NaN in another.

number: 89
package: sageattention 1.0.6
law: row_that_sees_one_key_copies_it, no_race_is_traced
case: batch=1 nheads=2 nheads_k=2 seqlen_q=64 seqlen_k=64 headdim=64 dtype=float16 causal=True
consequence: With 1 to 64 keys, the last head reads past the end of K_scale. NaN there makes out
    NaN.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: 4096 elements of head 0 are NaN
"""

import torch
from sageattention.core import sageattn

q, k, v = (torch.ones(1, 2, 64, 64, device="cuda", dtype=torch.float16) for _ in range(3))
k[:, 1] = torch.nan  # head 0 does not depend on it
wrong = sageattn(q, k, v, is_causal=True, smooth_k=False)[:, 0].isnan().sum().item()
assert wrong == 0, f"{wrong} elements of head 0 are NaN"
