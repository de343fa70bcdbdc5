"""A sink is added to the sum of the softmax as it is, should be its exponential.

number: 16
package: fasterkernels 0.2.0
law: sink_takes_its_share
case: batch=1 nheads=1 nheads_k=1 seqlen_q=1 seqlen_k=1 headdim=64 dtype=float16 sinks=count
consequence: Models with sinks as scores get other values; a sink of -1 gives inf or a flipped sign.
found: 2026-11-25
status: not reported
gpu: seen on an H100
shows: AssertionError: with one key and a sink of 0 out is 1.0 v, should be 0.5 v
"""

import torch
from fskernels.triton.triton_gqa_decode import flash_decode_gqa_varlen

q = torch.zeros(1, 1, 64, device="cuda", dtype=torch.float16)  # so the score of the key is 0, too
k = v = torch.ones_like(q)
cu_seqlens = torch.tensor([0, 1], dtype=torch.int32, device="cuda")
out = flash_decode_gqa_varlen(q, k, v, cu_seqlens, s_aux=torch.zeros(1, device="cuda"))[0, 0, 0].item()
assert abs(out - 0.5) < 0.01, f"with one key and a sink of 0 out is {out} v, should be 0.5 v"
