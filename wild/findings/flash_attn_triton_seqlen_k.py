"""The number of keys is taken from q, so other keys are ignored.

number: 43
package: flash-attn-triton 0.1.1
law: calls_outside_the_promise_raise_or_are_right
case: batch=1 nheads=2 nheads_k=2 seqlen_q=128 seqlen_k=256 headdim=64 dtype=float16
consequence: flash_attn_kvpacked_func documents seqlen_q and seqlen_k. With fewer keys than
    queries, memory past the end of k is read.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: out is off by 0.85
"""

import sys

import torch
import triton

sys.modules["triton.tools.experimental_descriptor"] = triton  # the package imports it, and uses nothing of it
from flash_attn_triton.flash_attn_interface import flash_attn_kvpacked_func  # noqa: E402

q, kv = torch.randn(128, 64, device="cuda").half(), torch.randn(256, 2, 64, device="cuda").half()
out = flash_attn_kvpacked_func(q[None, :, None], kv[None, :, :, None])[0, :, 0]
right = (q.double() @ kv[:, 0].double().mT / 8).softmax(-1) @ kv[:, 1].double()
error = (out - right).abs().max().item()
assert error < 0.01, f"out is off by {error:.2f}"
