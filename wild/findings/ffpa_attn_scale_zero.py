"""scale=0 is taken for None, the default scale.

number: 29
package: ffpa-attn 0.2.4
law: scale_zero_is_q_zero
case: seqlen_q=1 seqlen_k=512 headdim=320 dtype=float16 softmax_scale=0.0
consequence: scale=0 gives attention with the scale 1 / sqrt(headdim), not the mean of v.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: with scale=0, out is off by 0.98 from the mean of v
"""

import torch
from ffpa_attn import ffpa_attn_func

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, n, 320, device="cuda", dtype=torch.float16) for n in (1, 512, 512))
error = (ffpa_attn_func(q, k, v, scale=0.0) - v.mean(2, keepdim=True)).abs().max().item()
assert error < 0.01, f"with scale=0, out is off by {error:.2f} from the mean of v"
