"""With a sink 89 or more above all scores, lse is inf and the sink's gradient 0.

number: 129
package: flash-attn-4 4.0.0b36
law: high_sink_takes_all, gradients_of_long_sums_match_the_definition
case: seqlen_q=1 seqlen_k=1 headdim=64 dtype=float16 sinks=high
consequence: exp2 of the sink minus the row's largest score overflows, as the maximum is taken of
    the scores alone. Merges that use lse are wrong, and such a sink is not trained.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: lse is inf, should be 100
"""

import torch
from flash_attn.cute import flash_attn_func

q, k, v = (torch.zeros(1, 1, 1, 64, device="cuda", dtype=torch.float16) for _ in range(3))
sink = torch.full((1,), 100.0, device="cuda", dtype=torch.bfloat16)
lse = flash_attn_func(q, k, v, learnable_sink=sink, return_lse=True)[1].item()
assert abs(lse - 100) < 1, f"lse is {lse}, should be 100"
