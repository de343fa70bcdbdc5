"""The CPU backend ignores scale.

number: 9
package: aule-attention 0.5.0
law: scale_zero_is_q_zero
case: batch=1 nheads=1 nheads_k=1 seqlen_q=4 seqlen_k=4 headdim=64 dtype=float32
consequence: Without a GPU, models whose scale is not 1 / sqrt(headdim) get wrong values.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: with scale=0, out is off by 0.99 from the mean of v
"""

import aule
import torch

torch.manual_seed(0)
aule.install(backend="cpu")
q, k, v = torch.randn(3, 1, 1, 4, 64)
error = (aule.flash_attention(q, k, v, causal=False, scale=0.0) - v.mean(2, keepdim=True)).abs().max().item()
assert error < 0.01, f"with scale=0, out is off by {error:.2f} from the mean of v"
