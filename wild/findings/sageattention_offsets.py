"""Offsets have 32 bits: if batches of k are 2^30 elements apart, the third is read from elsewhere.

number: 92
package: sageattention 1.0.6
law: offsets_need_64_bits
case: seqlen_q=9 seqlen_k=9 headdim=64 dtype=float16, with cu_seqlens
consequence: With q or k in a large buffer, other memory is read, or the access is illegal.
found: 2026-11-26
status: reported https://github.com/thu-ml/SageAttention/issues/386
gpu: seen on an H200
shows: AssertionError: out differs by 1.01 from out of the same k in contiguous memory
"""

import torch
from sageattention.core import sageattn

torch.manual_seed(0)
q, v, values = torch.randn(3, 3, 1, 64, 64, device="cuda").half()
buffer = torch.empty(2**32 + 4096, device="cuda", dtype=torch.float16)
buffer[:4096] = 0  # where an offset of -2^31 points to
k = buffer[2**31 :].as_strided(values.shape, (2**30, 4096, 64, 1)).copy_(values)
out, same = sageattn(q, k, v, smooth_k=False), sageattn(q, values, v, smooth_k=False)
error = (out - same).abs().max().item()
assert error == 0, f"out differs by {error:.2f} from out of the same k in contiguous memory"
