"""The forward takes any length, but reads and writes whole tiles of 64 rows: past the end of out.

number: 28
package: flashattention2-custom-mask 0.1.1
law: calls_outside_the_promise_raise_or_are_right
case: batch=1 nheads=1 nheads_k=1 seqlen_q=100 seqlen_k=100 headdim=64 dtype=float16
consequence: Inference with such a length counts keys that are not there and overwrites memory.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: 28 rows behind out are written
"""

import torch
from fa2_custom_mask import flash_attention_custom_mask

q, k, v, room = (torch.ones(1, 1, 128, 64, device="cuda", dtype=torch.float16) for _ in range(4))
statistics = torch.zeros(1, 1, 128, device="cuda")
torch.empty_like = lambda x: room.zero_()[:, :, :100]  # memory for out, with 28 rows behind it
torch.empty = lambda *size, **options: statistics[:, :, :100]
flash_attention_custom_mask(q[:, :, :100], k[:, :, :100], v[:, :, :100], None, 0.125)
written = room[0, 0, 100:].any(-1).sum().item()
assert written == 0, f"{written} rows behind out are written"
