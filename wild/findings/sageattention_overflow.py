"""P v is summed in float16 before it is divided by the sum of P, so v = 2000 gives inf.

number: 91
package: sageattention 1.0.6
law: out_matches_the_definition, single_query_matches_the_definition
case: seqlen_q=1 seqlen_k=128 headdim=64 dtype=float16 regime=one_sign seed=1
consequence: The README names the float16 accumulator, but not its limit: 64 keys of similar scores
    overflow for v from 1024 on.
found: 2026-11-25
status: reported https://github.com/thu-ml/SageAttention/issues/93
gpu: seen on an H100 and an H200
shows: AssertionError: out is inf, should be 2000
"""

import torch
from sageattention.core import sageattn

q, k = (torch.ones(1, 1, 64, 64, device="cuda", dtype=torch.float16) for _ in range(2))
v = torch.full_like(q, 2000.0)
out = sageattn(q, k, v)[0, 0, 0, 0].item()
assert abs(out - 2000) < 2, f"out is {out}, should be 2000"
