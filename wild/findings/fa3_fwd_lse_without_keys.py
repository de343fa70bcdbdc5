"""A row that sees no key has lse = inf, should be -inf.

number: 136
package: fa3-fwd 0.0.3
law: rows_without_keys_give_zero
case: seqlen_q=2 seqlen_k=1 headdim=64 dtype=bfloat16 causal=True
consequence: The sum of no exponentials is 0, and its logarithm -inf. In a merge by lse, such a part
    gets all the weight.
found: 2026-11-26
status: not reported
gpu: seen on an H100 by the law; this proof was not run yet
shows: AssertionError: lse is inf, should be -inf
"""

import torch
from fa3_fwd_interface import flash_attn_func

q, k = (torch.ones(1, n, 1, 64, device="cuda", dtype=torch.bfloat16) for n in (2, 1))
lse = flash_attn_func(q, k, k, causal=True, return_attn_probs=True)[1][0, 0, 0].item()  # its query sees no key
assert lse == -torch.inf, f"lse is {lse}, should be -inf"
