"""flash_attn_combine of more than 65,535 batches writes nothing, without an error.

number: 141
package: fa3-fwd 0.0.3
law: batches_beyond_65535
case: seqlen_q=2 seqlen_k=2 headdim=8 dtype=bfloat16 batch=65601 num_splits=2
consequence: out and lse are what their memory held before. In FlashAttention-3's source the batch
    is the third dimension of the grid, which CUDA limits to 65,535.
found: 2026-11-27
status: not reported
gpu: seen on an H200
shows: AssertionError: out still holds the number that was there before
"""

import torch
from fa3_fwd_interface import flash_attn_combine

parts, lse = torch.randn(2, 65601, 2, 1, 8, device="cuda"), torch.randn(2, 65601, 1, 2, device="cuda").mT
out = torch.full((65601, 2, 1, 8), 7.0, device="cuda")
got = flash_attn_combine(parts, lse, out=out, out_dtype=torch.float32)[0]
assert not (got == 7).all(), "out still holds the number that was there before"
