"""An attn_bias of -inf over a whole chunk of keys makes out NaN.

number: 77
package: memory-efficient-attention-pytorch 0.1.6
law: infinite_bias_hides_exactly_its_keys, biased_attention_matches_the_definition
case: batch=1 nheads=1 nheads_k=1 seqlen_q=1 seqlen_k=25 headdim=1 dtype=float32 bias=matrix
consequence: With memory_efficient=True, a bias that hides a chunk of 1,024 keys gives NaN.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: 64 of 64 elements of out are NaN
"""

import torch
from memory_efficient_attention_pytorch import memory_efficient_attention

torch.manual_seed(0)
q, k, v = torch.randn(1, 1, 1, 64), torch.randn(1, 1, 2048, 64), torch.randn(1, 1, 2048, 64)
bias = torch.zeros(1, 1, 1, 2048)
bias[..., 1024:] = -torch.inf
out = memory_efficient_attention(q, k, v, attn_bias=bias)
nans = out.isnan().sum().item()
assert nans == 0, f"{nans} of 64 elements of out are NaN"
