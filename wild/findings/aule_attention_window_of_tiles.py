"""Without causal, queries near the edge of a tile miss keys that their window has in the next tile.

number: 2
package: aule-attention 0.5.0
law: query_sees_exactly_its_window
case: seqlen_q=1 seqlen_k=1 headdim=64 dtype=float32 window=1:1
consequence: The keys are chosen around the middle of the query tile, so results are wrong, without
    an error.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: query 60 sees 20 keys, should see 33
"""

import torch
from aule.triton_flash import flash_attention_triton

q = torch.zeros(1, 1, 128, 64, device="cuda")  # so all visible keys have the same weight
v = torch.eye(128, device="cuda")[None, None]  # column j of out is the weight of key j
out = [flash_attention_triton(q, q, v[..., i : i + 64], causal=False, window_size=16) for i in (0, 64)]
seen = sum((part[0, 0, 60] > 0).sum().item() for part in out)
assert seen == 33, f"query 60 sees {seen} keys, should see 33"
