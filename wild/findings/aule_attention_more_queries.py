"""With causal=True, rows are NaN in each query tile that starts past the last key.

number: 4
package: aule-attention 0.5.0
law: winning_key_is_copied, equal_values_give_no_score_gradient
case: seqlen_q=65 seqlen_k=1 headdim=64 dtype=float32 causal=True
consequence: Cross-attention is documented. With causal=True and more queries than keys, its last
    rows are NaN.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: row 64 is nan, should be 1
"""

import torch
from aule.triton_flash import flash_attention_triton

q, k, v = (torch.ones(1, 1, n, 64, device="cuda") for n in (65, 64, 64))
out = flash_attention_triton(q, k, v, causal=True)[0, 0, 64, 0].item()  # query 64 sees all 64 keys
assert out == 1, f"row 64 is {out}, should be 1"
