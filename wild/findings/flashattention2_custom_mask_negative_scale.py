"""Without a mask, the maximum is taken before the scale, so a negative sm_scale makes out NaN.

number: 59
package: flashattention2-custom-mask 0.1.1
law: negative_scale_is_negated_q
case: batch=1 nheads=1 nheads_k=1 seqlen_q=128 seqlen_k=128 headdim=64 dtype=float16
consequence: A negative sm_scale gives NaN where scores are large, without an error.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: 8192 of 8192 elements of out are NaN
"""

import torch
from fa2_custom_mask import flash_attention_custom_mask

torch.manual_seed(0)
q, k, v = (8 * torch.randn(1, 1, 128, 64, device="cuda", dtype=torch.float16) for _ in range(3))
out = flash_attention_custom_mask(q, k, v, None, -0.125)
nan = out.isnan().sum().item()
assert nan == 0, f"{nan} of {out.numel()} elements of out are NaN"
