"""The backward writes past the ends of dq, dk and dv if q, k and v are strided.

number: 27
package: fastflash-attention 0.2.0
law: memory_around_inputs_is_not_read, inputs_come_back_unchanged
case: batch=1 nheads=2 nheads_k=2 seqlen_q=1 seqlen_k=1 headdim=64 dtype=bfloat16 layout=packed
consequence: With q, k and v from one projection and batch 1, the backward overwrites other tensors.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: 3 tensors were written past their ends
"""

import torch
from fastflash_attention import fast_attention

qkv = torch.randn(1, 16, 3, 2, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
q, k, v = qkv.transpose(1, 3).unbind(2)
out = fast_attention(q, k, v)
rooms = []  # each tensor of the backward, with room after it
torch.empty_like = lambda x: (rooms.append(x.new_zeros(4, x.numel())) or rooms[-1])[0].view(x.shape)
torch.autograd.grad(out.sum(), (q, k, v))
written = sum(room[1:].any().item() for room in rooms)
assert written == 0, f"{written} tensors were written past their ends"
