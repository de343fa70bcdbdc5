"""If cu_seqlens ends before the last row, the gradient of sink_bias has terms of the rows past it.

number: 32
package: fla-core 0.6.0
law: gradients_match_the_definition
case: seqlen_q=5 seqlen_k=5 headdim=64 dtype=float32 causal=True sinks=count slack=1
consequence: With a padded buffer, memory that was never written can enter the gradient of the
    sinks.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: dsink is nan, should be -4
"""

import torch
from fla.ops.attn.parallel import parallel_attn

torch.use_deterministic_algorithms(True, warn_only=True)  # fills unwritten memory with NaN
q, k, v = torch.ones(3, 1, 2, 1, 16, device="cuda")
sinks = torch.full((1,), 4.0, device="cuda", requires_grad=True)  # the score of the key is 16 / 4, too
cu_seqlens = torch.tensor([0, 1], device="cuda")  # row 1 belongs to no sequence
out = parallel_attn(q, k, v, cu_seqlens=cu_seqlens, sink_bias=sinks)
dsink = torch.autograd.grad(out[:, :1].sum(), sinks)[0].item()
assert abs(dsink + 4) < 0.01, f"dsink is {dsink}, should be -4"
