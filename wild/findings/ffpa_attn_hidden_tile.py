"""A mask that hides the first tile of keys from 512 queries gives NaN, though a key is visible.

number: 122
package: ffpa-attn 0.2.4
law: out_averages_the_keys_that_a_bias_leaves
case: seqlen_q=1 seqlen_k=65 headdim=64 dtype=float16 bias=matrix bias_mask=dead_row
    bias_keeps_key=True seed=3
consequence: Masks for padding on the left, for example, turn whole rows into NaN where there are
    enough heads or queries for all SMs of the GPU.
found: 2026-11-26
status: not reported
gpu: not seen on an H200, which gives each tile of keys of so few heads to another SM
shows: AssertionError: out is off by nan from v of the only visible key
"""

import torch
from ffpa_attn import ffpa_attn_func

torch.manual_seed(0)
q, k, v = torch.randn(3, 1, 1, 512, 320, device="cuda", dtype=torch.float16)
mask = torch.zeros(1, 1, 512, 512, device="cuda", dtype=torch.bool)
mask[..., 511] = True  # the last key is visible
error = (ffpa_attn_func(q, k, v, mask) - v[:, :, 511:]).abs().max().item()
assert error < 0.01, f"out is off by {error:.2f} from v of the only visible key"
