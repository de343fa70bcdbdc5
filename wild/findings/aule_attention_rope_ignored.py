"""flash_attention ignores rot_cos and rot_sin in its Triton backend.

number: 7
package: aule-attention 0.5.0
law: none: rotary embeddings cannot be declared
case: batch=1 nheads=1 nheads_k=1 seqlen_q=64 seqlen_k=64 headdim=64
consequence: Queries and keys are not rotated, and no warning says so. The other backends warn.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: rot_cos and rot_sin change nothing
"""

import aule
import torch

torch.manual_seed(0)
q, k, v = torch.randn(3, 1, 1, 64, 64, device="cuda")
cos, sin = aule.precompute_rope_frequencies(64, 64)
change = (aule.flash_attention(q, k, v, rot_cos=cos, rot_sin=sin) - aule.flash_attention(q, k, v)).abs().max()
assert change > 0, "rot_cos and rot_sin change nothing"
