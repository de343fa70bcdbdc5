"""Head dim 16 is accepted and cannot be compiled: every configuration has tiles of 32 keys or more.

number: 73
package: jvp-flash-attention 0.14.0
law: contract_is_kept
case: batch=1 nheads=1 nheads_k=1 seqlen_q=32 seqlen_k=32 headdim=16 dtype=float32
consequence: Head dim 16, one of five that it says it supports, raises an error of the compiler.
found: 2026-11-25
status: not reported
gpu: seen on an H100
shows: ^
"""

import torch
from jvp_flash_attention.jvp_attention import attention

q, k, v = (torch.randn(1, 1, 64, 16, device="cuda") for _ in range(3))
attention(q, k, v)
