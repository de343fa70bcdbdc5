"""FlashAttention does not compile for bfloat16.

number: 55
package: flashnn 0.1.1
law: none: the adapter declares float16 only
case: seqlen_q=64 seqlen_k=64 headdim=64 dtype=bfloat16
consequence: The documentation lists bfloat16; P is cast to float16 whatever the dtype of v.
found: 2026-11-25
status: not reported
gpu: not tried
shows: AssertionError: Both operands must be same dtype. Got fp16 and bf16
"""

import torch
from flashnn import FlashAttention

q = torch.ones(1, 64, 1, 64, device="cuda", dtype=torch.bfloat16)
try:
    message = FlashAttention()(q, q, q, False) is None and ""
except Exception as error:
    message = str(error.__cause__ or error).strip().splitlines()[-1][:64]
assert not message, message
