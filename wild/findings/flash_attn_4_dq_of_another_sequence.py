"""In packed calls with some head dims, dq of a sequence is that of another one, or 0.

number: 138
package: flash-attn-4 4.0.0b36
law: gradients_match_the_definition, prefix_alone_equals_prefix_of_the_whole
case: seqlen_q=2 seqlen_k=2 headdim=8 dtype=float16 causal=True neighbours=mixed seed=2
consequence: Training on packed sequences goes wrong without an error, on Hopper with head dims 8,
    16, 40, 48, 72, 80, 104 and 112. The kernel that sums dq pads head dims to a multiple of 16, and
    those before and behind it to one of 32, so they mean other places by a sequence's offset.
found: 2026-11-26
status: not reported
gpu: seen on an H200, with this case
shows: AssertionError: dq is 0.91, should be 0, as this query sees one key
"""

import torch
from flash_attn.cute import flash_attn_varlen_func

q, k, v, dout = torch.randn(4, 4, 1, 8, device="cuda").half()
starts = torch.tensor([0, 1, 2, 4], device="cuda", dtype=torch.int32)  # one query, one query, two
lengths = dict(cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=2, max_seqlen_k=2)
out, lse = flash_attn_varlen_func(q.requires_grad_(), k, v, **lengths, causal=True, return_lse=True)
dq = torch.autograd.grad(out, q, dout)[0][1].abs().max().item()
assert dq < 0.01, f"dq is {dq:.2f}, should be 0, as this query sees one key"
