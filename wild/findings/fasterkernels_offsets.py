"""Offsets have 32 bits: if batches of k are 2^30 elements apart, the third is read from elsewhere.

number: 23
package: fasterkernels 0.2.0
law: offsets_need_64_bits
case: seqlen_q=1 seqlen_k=4 headdim=64 dtype=float16
consequence: With k in a large buffer, such as a cache, other memory is read, or the access is
    illegal.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: out differs by 1.02 from out of the same k in contiguous memory
"""

import torch
from fskernels.triton.triton_fa2 import flash_attention_2_fwd

torch.manual_seed(0)
q, v, values = torch.randn(3, 3, 1, 64, 64, device="cuda").half()
buffer = torch.empty(2**32 + 4096, device="cuda", dtype=torch.float16)
buffer[:4096] = 0  # where an offset of -2^31 points to
k = buffer[2**31 :].as_strided(values.shape, (2**30, 4096, 64, 1)).copy_(values)
error = (flash_attention_2_fwd(q, k, v) - flash_attention_2_fwd(q, values, v)).abs().max().item()
assert error == 0, f"out differs by {error:.2f} from out of the same k in contiguous memory"
