"""n is weighed by exp of a maximum that is in base 2, so out is 0.16 and should be 0.59.

number: 34
package: flash-attention-softmax-n 0.3.2
law: out_matches_the_definition
case: seqlen_q=128 seqlen_k=128 headdim=64 dtype=float16 sinks=count regime=one_sign
consequence: The weights of flash_attention_n_triton with n > 0 are not those of softmax_n.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: out is 0.16, should be 0.59
"""

import torch
from flash_attention_softmax_n import flash_attention_n_triton

q = torch.full((1, 1, 128, 64), 0.75, device="cuda", dtype=torch.float16)
v = torch.ones_like(q)
got = flash_attention_n_triton(q, -q, v, softmax_n_param=1.0)[0, 0, 0, 0].item()
weight = 128 * torch.tensor(-4.5).exp().item()  # each score is -0.5625 * 64 / 8
want = weight / (1 + weight)
assert abs(got - want) < 0.01, f"out is {got:.2f}, should be {want:.2f}"
