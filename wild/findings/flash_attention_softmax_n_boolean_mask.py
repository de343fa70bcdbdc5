"""slow_attention_n ignores a boolean mask, and sets all elements of the caller's mask to True.

number: 39
package: flash-attention-softmax-n 0.3.2
law: bias_picks_its_key, keys_hidden_by_bias_change_no_bit
case: seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 bias=boolean_matrix
consequence: Queries see keys that the mask hides, and a second call with the mask gets one that
    hides nothing.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: out is off by 3.63, 64 elements of the mask are set
"""

import torch
from flash_attention_softmax_n import slow_attention_n

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, 8, 64) for _ in range(3))
mask = torch.eye(8, dtype=torch.bool)
error = (slow_attention_n(q, k, v, attn_mask=mask) - v).abs().max().item()
assert error < 0.01 and mask.sum() == 8, f"out is off by {error:.2f}, {mask.sum()} elements of the mask are set"
