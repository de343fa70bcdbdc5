"""With a length of 100, 28 rows past the end of out are written.

number: 57
package: flashattention2-custom-mask 0.1.1
law: calls_outside_the_promise_raise_or_are_right
case: batch=1 nheads=1 nheads_k=1 seqlen_q=100 seqlen_k=100 headdim=64 dtype=float16
consequence: Lengths that a tile does not divide raise no error. Keys that do not exist count, and
    other memory is overwritten.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: 28 rows past the end of out were written
"""

import torch
from fa2_custom_mask import flash_attention_custom_mask

q, k, v, room = (torch.ones(1, 1, 128, 64, device="cuda", dtype=torch.float16) for _ in range(4))
statistics = torch.zeros(1, 1, 128, device="cuda")
torch.empty_like = lambda x: room.zero_()[:, :, :100]  # out, with 28 rows after it
torch.empty = lambda *size, **options: statistics[:, :, :100]  # lse, too
flash_attention_custom_mask(q[:, :, :100], k[:, :, :100], v[:, :, :100], None, 0.125)
written = room[0, 0, 100:].any(-1).sum().item()
assert written == 0, f"{written} rows past the end of out were written"
