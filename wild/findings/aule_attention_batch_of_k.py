"""k and v with fewer batches than q are accepted, and memory past their ends is read.

number: 6
package: aule-attention 0.5.0
law: calls_outside_the_promise_raise_or_are_right
case: batch=2 seqlen_q=4 seqlen_k=4 headdim=64 dtype=float32
consequence: aule.install() replaces PyTorch's scaled_dot_product_attention, which broadcasts a
    batch of 1. Here other memory is read, without an error.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: out of batch 1 is 7.0, should be 1
"""

import aule
import torch

q, memory = torch.ones(2, 1, 64, 64, device="cuda"), torch.ones(2, 1, 64, 64, device="cuda")
memory[1] = 7
k = v = memory[:1]  # one batch, which PyTorch would use for both batches of q
try:
    out = aule.scaled_dot_product_attention(q, k, v)[1].max().item()
except (AssertionError, ValueError, RuntimeError):
    out = 1  # a refusal is right, too
assert out == 1, f"out of batch 1 is {out}, should be 1"
