"""The forward finds the heads of k and v by the strides of q.

number: 58
package: flashattention2-custom-mask 0.1.1
law: calls_outside_the_promise_raise_or_are_right
case: batch=1 nheads=2 nheads_k=2 seqlen_q=128 seqlen_k=128 headdim=64 dtype=float16 layout=mixed
consequence: With k and v from one projection, out is wrong, without an error.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: out is off by 0.69
"""

import torch
from fa2_custom_mask import flash_attention_custom_mask

torch.manual_seed(0)
q = torch.randn(1, 2, 128, 64, device="cuda", dtype=torch.float16)
k, v = torch.randn(1, 2, 128, 128, device="cuda", dtype=torch.float16).chunk(2, -1)
right = (q.double() @ k.double().mT * 0.125).softmax(-1) @ v.double()
error = (flash_attention_custom_mask(q, k, v, None, 0.125) - right).abs().max().item()
assert error < 0.01, f"out is off by {error:.2f}"
