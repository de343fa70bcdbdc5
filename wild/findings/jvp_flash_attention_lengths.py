"""With 34 rows, which is accepted, elements past the end of lse are written.

number: 69
package: jvp-flash-attention 0.14.0
law: contract_is_kept
case: batch=1 nheads=1 nheads_k=1 seqlen_q=34 seqlen_k=34 headdim=32 dtype=float32
consequence: Lengths that 32 does not divide overwrite other tensors, and count keys of the next
    head.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: 30 elements past the end of lse were written
"""

import torch
from jvp_flash_attention.jvp_attention import attention

q, k, v = torch.ones(3, 1, 4, 34, 32, device="cuda")[:, :, :2]  # two heads, with room after the last
pool = torch.zeros(1, 4, 34, device="cuda")
torch.empty = lambda *size, **options: pool[:, :2]  # lse
torch.empty_like = lambda x: torch.zeros(1, 4, 34, 32, device="cuda")[:, :2]  # out
attention(q, k, v)
written = pool[:, 2:].count_nonzero().item()
assert written == 0, f"{written} elements past the end of lse were written"
