"""With a softmax_scale of 0 or below, out is NaN on Hopper, without an error.

number: 127
package: flash-attn-4 4.0.0b36
law: scale_zero_is_q_zero, negative_scale_is_negated_q
case: seqlen_q=64 seqlen_k=64 headdim=64 dtype=bfloat16 softmax_scale=0.0
consequence: The -inf of keys past the last one is multiplied by the scale. Nothing documents that
    the scale must be positive.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: 8192 of 8192 elements of out are NaN
"""

import torch
from flash_attn.cute import flash_attn_func

q, k, v = torch.randn(3, 1, 64, 2, 64, device="cuda", dtype=torch.bfloat16)
out, lse = flash_attn_func(q, k, v, softmax_scale=-0.125, return_lse=True)  # the attention of -q, scale 0.125
nan = out.isnan().sum().item()
assert nan == 0, f"{nan} of {out.numel()} elements of out are NaN"
