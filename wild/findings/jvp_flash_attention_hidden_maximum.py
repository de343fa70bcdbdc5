"""A key that causal=True hides still raises the running maximum, so a large one changes out.

number: 66
package: jvp-flash-attention 0.14.0
law: keys_hidden_by_bias_change_no_bit
case: seqlen_q=32 seqlen_k=32 headdim=32 dtype=float32 bias=boolean_matrix bias_mask=right
consequence: Keys that causal or a boolean mask hides change out if their scores are large.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: a hidden key changes out by 0.62
"""

import torch
from jvp_flash_attention.jvp_attention import attention

torch.manual_seed(0)
q, k, v = (torch.rand(1, 1, 64, 32, device="cuda") for _ in range(3))
first = attention(q, k, v, causal=True)
k[:, :, 63] = 600  # only query 63 sees it
change = (attention(q, k, v, causal=True) - first)[:, :, :63].abs().max().item()
assert change < 0.01, f"a hidden key changes out by {change:.2f}"
