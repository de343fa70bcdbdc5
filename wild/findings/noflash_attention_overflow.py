"""P v is summed in float16 before it is divided by the sum of P, so v = 2000 gives inf.

number: 123
package: noflash-attention 1.0.1
law: out_matches_the_definition, single_query_matches_the_definition
case: seqlen_q=1 seqlen_k=24 headdim=8 dtype=float16 nheads=16 regime=one_sign seed=1
consequence: Where chunks of keys have to be taken, 64 keys of similar scores overflow for v from
    1024 on, and chunks of queries alone give the right answer.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: out is inf, should be 2000
"""

import torch
from noflash_attention import chunked_sdpa_online

q, k = (torch.ones(1, 1, 64, 64, dtype=torch.float16) for _ in range(2))
v = torch.full_like(q, 2000.0)
out = chunked_sdpa_online(q, k, v)[0, 0, 0, 0].item()
assert abs(out - 2000) < 2, f"out is {out}, should be 2000"
