"""Head dim 16, which the package says it supports, does not compile.

number: 70
package: jvp-flash-attention 0.14.0
law: contract_is_kept
case: batch=1 nheads=1 nheads_k=1 seqlen_q=32 seqlen_k=32 headdim=16 dtype=float32
consequence: One of the five head dims that its error message lists raises a compilation error.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: head dim 16 raises CompileTimeAssertionFailure
"""

import torch
from jvp_flash_attention.jvp_attention import attention

q, k, v = (torch.randn(1, 1, 64, 16, device="cuda") for _ in range(3))
raised = None
try:
    attention(q, k, v)
except Exception as error:
    raised = type(error).__name__
assert raised is None, f"head dim 16 raises {raised}"
