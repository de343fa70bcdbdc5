"""With some head dims, dq is wrong from query 64 on, and in packed sequences behind the first one.

number: 138
package: flash-attn-4 4.0.0b36
law: gradients_match_the_definition, prefix_alone_equals_prefix_of_the_whole
case: seqlen_q=65 seqlen_k=65 headdim=8 dtype=float16
consequence: Training goes wrong without an error, on Hopper. Seen with head dim 8; by the source
    also with 16, 40, 48, 72, 80, 104 and 112. The kernel that sums dq pads head dims to a multiple
    of 16 (flash_bwd_sm90.py), the kernels before and behind it to one of 32 (interface.py).
found: 2026-11-26
status: not reported
gpu: seen on an H200, in a packed call
shows: AssertionError: dq of query 64 is 0 in every element
"""

import torch
from flash_attn.cute import flash_attn_func

q, k, v, dout = torch.randn(4, 1, 65, 1, 8, device="cuda").half()
out, lse = flash_attn_func(q.requires_grad_(), k, v, causal=True, return_lse=True)
dq = torch.autograd.grad(out, q, dout)[0][0, :, 0]
assert dq[64].any(), "dq of query 64 is 0 in every element"
