"""A sink is added to the sum of the softmax as it is, not as exp(sink - maximum).

number: 22
package: fasterkernels 0.2.0
law: sink_takes_its_share
case: batch=1 nheads=1 nheads_k=1 seqlen_q=1 seqlen_k=1 headdim=64 dtype=float16 sinks=count
consequence: Models with learned sinks get wrong values. A negative sink can give inf, or flip the
    sign of out.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: with a score of 10 and a sink of 1, out is 0.50 v, should be 1.00 v
"""

import torch
from fskernels.triton.triton_gqa_decode import flash_decode_gqa_varlen

k = v = torch.ones(1, 1, 64, device="cuda", dtype=torch.float16)
cu_seqlens, sink = torch.tensor([0, 1], dtype=torch.int32, device="cuda"), torch.ones(1, device="cuda")
out = flash_decode_gqa_varlen(k * 1.25, k, v, cu_seqlens, s_aux=sink).mean().item()
right = torch.tensor([10.0, 1.0]).softmax(0)[0].item()  # the score of the key is 1.25 * 64 / 8 = 10
assert abs(out - right) < 0.01, f"with a score of 10 and a sink of 1, out is {out:.2f} v, should be {right:.2f} v"
