"""In a call without keys, lse is inf, should be -inf.

number: 136
package: fa3-fwd 0.0.3
law: no_keys_give_zero
case: seqlen_q=1 seqlen_k=0 headdim=8 dtype=bfloat16
consequence: The sum of no exponentials is 0, and its logarithm -inf. In a merge by lse, such a part
    gets all the weight. Rows that a causal mask leaves without keys have -inf, as they should.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: lse is inf, should be -inf
"""

import torch
from fa3_fwd_interface import flash_attn_func

q, k = (torch.ones(1, n, 1, 64, device="cuda", dtype=torch.bfloat16) for n in (1, 0))
lse = flash_attn_func(q, k, k, return_attn_probs=True)[1][0, 0, 0].item()
assert lse == -torch.inf, f"lse is {lse}, should be -inf"
