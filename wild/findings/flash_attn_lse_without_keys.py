"""lse of a row without keys is inf, should be -inf.

number: 143
package: flash-attn 2.8.3.post2
law: no_keys_give_zero
case: seqlen_q=1 seqlen_k=0 headdim=8 dtype=float16
consequence: Documented is the logsumexp of each row. The sum of no exponentials is 0, and its
    logarithm -inf. In a merge by lse, such a part gets all the weight. Rows that a causal mask
    leaves without keys have it, too.
found: 2026-11-27
status: not reported
gpu: needed; this proof was not run yet, the value stands in the source (normalize_softmax_lse)
shows: AssertionError: lse is inf, should be -inf
"""

import torch
from flash_attn import flash_attn_func

q, k = (torch.ones(1, n, 1, 64, device="cuda", dtype=torch.float16) for n in (1, 0))
lse = flash_attn_func(q, k, k, return_attn_probs=True)[1][0, 0, 0].item()
assert lse == -torch.inf, f"lse is {lse}, should be -inf"
