"""Tiles of 32 rows have no mask: with 34 rows, which it accepts, it writes outside of tensors.

number: 72
package: jvp-flash-attention 0.14.0
law: contract_is_kept
case: batch=1 nheads=1 nheads_k=1 seqlen_q=34 seqlen_k=34 headdim=32 dtype=float32
consequence: Keys of the next head count, and memory behind lse and out is overwritten.
found: 2026-11-25
status: not reported
gpu: seen on an H100
shows: AssertionError: out is off by nan
"""

import contextlib

import torch
from jvp_flash_attention.jvp_attention import attention

torch.manual_seed(0)
q, k, v = (torch.randn(1, 2, 34, 32, device="cuda") for _ in range(3))
expected = (q.double() @ k.double().mT / 32**0.5).softmax(-1) @ v.double()
error = float("nan")
with contextlib.suppress(Exception):  # a GPU goes on, an emulator raises an error
    error = (attention(q, k, v) - expected).abs().max().item()
assert error < 0.01, f"out is off by {error:.2f}"
