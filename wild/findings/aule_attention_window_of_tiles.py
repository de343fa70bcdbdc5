"""A window without causal ends at half its size before and behind the middle of a query tile.

number: 8
package: aule-attention 0.5.0
law: query_sees_exactly_its_window
case: seqlen_q=1 seqlen_k=1 headdim=64 dtype=float32 window=1:1
consequence: Queries near the end of a tile lose the keys of the next one, without an error.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: query 60 sees 20 keys, should see 33
"""

import torch
from aule.triton_flash import flash_attention_triton

q = torch.zeros(1, 1, 128, 64, device="cuda")  # so each key that is seen has the same weight
v = torch.eye(128, device="cuda")[None, None]
out = [flash_attention_triton(q, q, v[..., i : i + 64], causal=False, window_size=16) for i in (0, 64)]
seen = sum((part[0, 0, 60] > 0).sum().item() for part in out)
assert seen == 33, f"query 60 sees {seen} keys, should see 33"
