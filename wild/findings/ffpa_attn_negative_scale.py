"""With is_causal=True, a negative scale makes dq NaN.

number: 30
package: ffpa-attn 0.2.4
law: gradients_match_the_definition, ragged_sizes_match_the_definition, negative_scale_is_negated_q
case: seqlen_q=512 seqlen_k=512 headdim=320 dtype=float16 causal=True softmax_scale=-0.25
consequence: The forward is right with a negative scale, but training with it gives NaN, without an
    error.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: 163840 of 163840 elements of dq are NaN
"""

import torch
from ffpa_attn import ffpa_attn_func

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, 512, 320, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(3))
ffpa_attn_func(q, k, v, is_causal=True, scale=-0.25).sum().backward()
nans = q.grad.isnan().sum().item()
assert nans == 0, f"{nans} of {q.numel()} elements of dq are NaN"
