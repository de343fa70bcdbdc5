"""Offsets have 32 bits: the third batch of k is read from elsewhere if batches are 2^30 apart.

number: 6
package: sageattention 1.0.6
law: none: the strides of offsets_need_64_bits are too large to be passed in 32 bits
case: batch=3 nheads=1 nheads_k=1 seqlen_q=64 seqlen_k=64 headdim=64 dtype=float16 layout=gapped
consequence: In views of a large buffer, other memory is read as q or k, or the access is illegal.
found: 2026-11-26
status: reported https://github.com/thu-ml/SageAttention/issues/386
gpu: not tried
shows: AssertionError: out differs by 0.73 from that of the same k in contiguous memory
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
assert error == 0, f"out differs by {error:.2f} from that of the same k in contiguous memory"
