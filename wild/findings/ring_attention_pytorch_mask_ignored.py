"""With causal=True a mask of keys is ignored, without an error.

number: 179
package: ring-attention-pytorch 0.5.20
law: calls_outside_the_promise_raise_or_are_right
case: batch=1 nheads=1 nheads_k=1 seqlen_q=2 seqlen_k=2 headdim=1 dtype=float32 causal=True
consequence: Padding before the keys counts. A comment in the source says so, no document.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: a masked key changes out by 72.41
"""

import torch
from ring_attention_pytorch import ring_flash_attn

torch.manual_seed(0)
q, k, v = (torch.randn(1, 8, 1, 64) for _ in range(3))
mask = torch.arange(8)[None] > 0  # key 0 is hidden
first = ring_flash_attn(q, k, v, mask=mask, causal=True)
v[:, 0] += 100
change = (ring_flash_attn(q, k, v, mask=mask, causal=True) - first)[:, 1:].abs().max().item()
assert change == 0, f"a masked key changes out by {change:.2f}"
