"""With causal=True and a window, rows are NaN if their first tile of keys lies outside the window.

number: 1
package: aule-attention 0.5.0
law: query_sees_exactly_its_window
case: seqlen_q=128 seqlen_k=128 headdim=64 dtype=float32 causal=True window=16:
consequence: A window that a tile does not divide (64 keys, or 32 above head dim 64) gives NaN in
    long sequences.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: 48 of 128 rows are NaN
"""

import torch
from aule.triton_flash import flash_attention_triton

q, k, v = torch.ones(3, 1, 1, 128, 64, device="cuda")
out = flash_attention_triton(q, k, v, causal=True, window_size=16)
wrong = out.isnan().any(-1).sum().item()
assert wrong == 0, f"{wrong} of 128 rows are NaN"
