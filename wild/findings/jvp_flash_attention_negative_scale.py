"""The running maximum is taken before the scale, so a negative sm_scale makes out overflow.

number: 65
package: jvp-flash-attention 0.14.0
law: negative_scale_is_negated_q
case: seqlen_q=32 seqlen_k=32 headdim=32 dtype=float32 softmax_scale=0.5 regime=large
consequence: A negative sm_scale gives inf or NaN where scores are large, without an error.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: 2048 elements of out are not finite
"""

import torch
from jvp_flash_attention.jvp_attention import attention

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, 64, 32, device="cuda") for _ in range(3))
out = attention(q, 100 * k, v, sm_scale=-1.0)
assert out.isfinite().all(), f"{(~out.isfinite()).sum()} elements of out are not finite"
