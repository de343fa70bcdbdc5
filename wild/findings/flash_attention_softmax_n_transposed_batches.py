"""With one head, the stride of the head axis is taken for the stride of the batch axis.

number: 36
package: flash-attention-softmax-n 0.3.2
law: neighbours_change_no_bit, batch_changes_no_bit, copies_agree, no_race_is_traced
case: batch=2 seqlen_q=128 seqlen_k=128 headdim=64 dtype=float16
consequence: q, k and v that are transposed from (batch, seqlen, nheads, headdim) give a wrong out
    if there are several batches.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: out is off by nan
"""

import torch
from flash_attention_softmax_n import flash_attention_n_triton

torch.manual_seed(0)
q, k, v = (torch.randn(2, 128, 1, 64, device="cuda", dtype=torch.float16).transpose(1, 2) for _ in range(3))
want = (q.double() @ k.double().mT / 8).softmax(-1) @ v.double()
error = (flash_attention_n_triton(q, k, v) - want).abs().max().item()
assert error < 0.01, f"out is off by {error:.2f}"
