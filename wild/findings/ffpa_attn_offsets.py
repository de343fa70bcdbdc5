"""Offsets of heads have 32 bits: if heads of k are 2^30 elements apart, the third is misread.

number: 121
package: ffpa-attn 0.2.4
law: offsets_need_64_bits
case: batch=1 nheads=2 nheads_k=2 seqlen_q=1 seqlen_k=1 headdim=64 dtype=float16
consequence: Attention over views of a large buffer, such as a cache of keys, reads other memory.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: out differs by 0.31 from out of the same k in contiguous memory
"""

import torch
from ffpa_attn import ffpa_attn_func

torch.manual_seed(0)
q = torch.randn(1, 3, 1, 320, device="cuda", dtype=torch.float16)
keys, v = torch.randn(2, 1, 3, 512, 320, device="cuda", dtype=torch.float16)
buffer = torch.empty(2**32 + 2**18, device="cuda", dtype=torch.float16)
buffer[: 2**18] = 0  # where an offset of -2^31 points to
k = buffer[2**31 :].as_strided(keys.shape, (2**30, 2**30, 320, 1)).copy_(keys)
error = (ffpa_attn_func(q, k, v) - ffpa_attn_func(q, keys, v)).abs().max().item()
assert error == 0, f"out differs by {error:.2f} from out of the same k in contiguous memory"
