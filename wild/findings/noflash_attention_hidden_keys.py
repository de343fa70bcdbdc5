"""Online and in-place chunks clamp scores after the mask: in float32, hidden keys keep a weight.

number: 80
package: noflash-attention 1.0.1
law: hidden_keys_change_no_bit, out_averages_exactly_its_prefix, row_that_sees_one_key_copies_it
case: batch=1 nheads=1 nheads_k=1 seqlen_q=1 seqlen_k=2 headdim=2 dtype=float32 causal=True
consequence: A hidden key has a weight of exp(-20), 2e-9, relative to the largest. It shows if
    hidden values are huge.
found: 2026-11-25
status: not reported
gpu: not tried
shows: AssertionError: hidden keys change out by 11.60
"""

import torch
from noflash_attention import chunked_sdpa_inplace, chunked_sdpa_online

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, 16, 64) for _ in range(3))
visible = (torch.arange(16) < 8).expand(1, 1, 16, 16)
first = [run(q, k, v, attn_mask=visible) for run in (chunked_sdpa_online, chunked_sdpa_inplace)]
v[:, :, 8:] = 1e9  # keys that no query sees
after = [run(q, k, v, attn_mask=visible) for run in (chunked_sdpa_online, chunked_sdpa_inplace)]
change = min((a - b).abs().max().item() for a, b in zip(first, after, strict=True))
assert change == 0, f"hidden keys change out by {change:.2f}"
