"""With cu_seqlens and causal, the next sequence's K_scale is read, so NaN there spreads to this.

number: 90
package: sageattention 1.0.6
law: row_that_sees_one_key_copies_it, no_race_is_traced
case: batch=2 nheads=1 nheads_k=1 seqlen_q=64 seqlen_k=64 headdim=64 dtype=float16 causal=True
consequence: A sequence of 1 to 64 keys depends on the next one, and the last reads past the end of
    K_scale.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: 4096 elements of the first sequence are NaN
"""

import torch
from sageattention.core import sageattn_varlen

q, k, v = (torch.ones(128, 1, 64, device="cuda", dtype=torch.float16) for _ in range(3))
k[64:] = torch.nan  # the first sequence does not depend on it
cu_seqlens = torch.tensor([0, 64, 128], dtype=torch.int32, device="cuda")
out = sageattn_varlen(q, k, v, cu_seqlens, cu_seqlens, 64, 64, is_causal=True, smooth_k=False)
wrong = out[:64].isnan().sum().item()
assert wrong == 0, f"{wrong} elements of the first sequence are NaN"
