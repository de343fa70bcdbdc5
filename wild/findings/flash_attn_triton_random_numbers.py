"""Each call draws a random number, although dropout is off.

number: 44
package: flash-attn-triton 0.1.1
law: contract_is_kept
case: batch=1 nheads=1 nheads_k=1 seqlen_q=128 seqlen_k=128 headdim=64 dtype=float16
consequence: Random numbers drawn after a call differ from those with another attention backend.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: the state of the generator has changed
"""

import sys

import torch
import triton

sys.modules["triton.tools.experimental_descriptor"] = triton  # the package imports it, and uses nothing of it
from flash_attn_triton import flash_attn_func  # noqa: E402

q, k, v = (torch.randn(1, 128, 1, 64, device="cuda", dtype=torch.float16) for _ in range(3))
state = torch.cuda.get_rng_state()
flash_attn_func(q, k, v)
assert torch.equal(torch.cuda.get_rng_state(), state), "the state of the generator has changed"
