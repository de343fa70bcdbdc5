"""Offsets have 32 bits: if batches of k are 2^30 elements apart, the third is read from elsewhere.

number: 93
package: simpler-flash 1.3.5
law: offsets_need_64_bits
case: seqlen_q=4 seqlen_k=4 headdim=64 dtype=float16 batch=2 nheads=2
consequence: With k in a large buffer, such as a cache, other memory is read, or the access is
    illegal.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: lse differs by 1.02 from lse of the same k in contiguous memory
"""

import sys
from importlib.util import find_spec

import torch

sys.path += find_spec("simpler_flash").submodule_search_locations  # its __init__ needs torchvision
from flashattention import flash_attn_func

q, values = torch.randn(2, 3, 64, 1, 64, device="cuda").half()
k = torch.zeros(2**32 + 4096, device="cuda", dtype=torch.float16)[2**31 :].as_strided(values.shape, (2**30, 64, 64, 1))
lse, right = (flash_attn_func(q, x, values)[1] for x in (k.copy_(values), values))
error = (lse - right).abs().max().item()
assert error == 0, f"lse differs by {error:.2f} from lse of the same k in contiguous memory"
