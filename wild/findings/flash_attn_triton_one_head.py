"""The backward refuses contiguous q, k and v of one head: it compares strides of size-1 dimensions.

number: 45
package: flash-attn-triton 0.1.1
law: gradients_match_the_definition
case: batch=2 nheads=1 nheads_k=1 seqlen_q=128 seqlen_k=128 headdim=64 dtype=float16
consequence: With one head, loss.backward() raises an AssertionError.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError
"""

import sys

import torch
import triton

sys.modules["triton.tools.experimental_descriptor"] = triton  # the package imports it, and uses nothing of it
from flash_attn_triton import flash_attn_func  # noqa: E402

q, k, v = (torch.randn(2, 128, 1, 64, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(3))
flash_attn_func(q, k, v).sum().backward()
