"""k and v with fewer heads than q raise no error: heads are read from behind them.

number: 123
package: flashattention2-custom-mask 0.1.1
law: calls_outside_the_promise_raise_or_are_right
case: batch=1 nheads=2 nheads_k=1 seqlen_q=128 seqlen_k=128 headdim=64 dtype=float16
consequence: Grouped queries, which the package does not offer, give wrong values without an error.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: 8192 elements of out come from behind v
"""

import torch
from fa2_custom_mask import flash_attention_custom_mask

q, k, v = (torch.zeros(1, 2, 128, 64, device="cuda", dtype=torch.float16) for _ in range(3))
v[:, 1] = 1
out = flash_attention_custom_mask(q, k[:, :1], v[:, :1], None, 0.125)  # these v are all 0
behind = out.ne(0).sum().item()
assert behind == 0, f"{behind} elements of out come from behind v"
