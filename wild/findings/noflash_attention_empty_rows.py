"""With a float mask, all of dk is NaN if one row sees no key.

number: 81
package: noflash-attention 1.0.1
law: rows_without_keys_give_zero, rows_without_keys_leave_the_others_alone
case: batch=1 nheads=1 seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 bias=matrix bias_mask=dead_row
consequence: One fully masked query makes the gradients of all keys of its head NaN. Its out is 0.
found: 2026-11-25
status: not reported
gpu: seen on an H200, where the laws fail; the proof runs on a CPU
shows: AssertionError: 1024 of 1024 elements of dk are NaN
"""

import torch
from noflash_attention import chunked_sdpa

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, 16, 64, requires_grad=True) for _ in range(3))
mask = torch.zeros(1, 1, 16, 16)
mask[..., 0, :] = -torch.inf  # query 0 sees no key
(dk,) = torch.autograd.grad(chunked_sdpa(q, k, v, attn_mask=mask).sum(), k)
assert not dk.isnan().any(), f"{dk.isnan().sum()} of 1024 elements of dk are NaN"
