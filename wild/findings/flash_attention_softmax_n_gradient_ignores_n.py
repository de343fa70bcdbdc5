"""With softmax_n_param, the gradient of v is the one for n = 0.

number: 35
package: flash-attention-softmax-n 0.3.2
law: gradients_match_the_definition, tiny_scores_match_the_definition
case: seqlen_q=128 seqlen_k=128 headdim=64 dtype=float16 sinks=count regime=flat
consequence: Training with flash_attention_n_triton and n > 0 follows wrong gradients.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: dv is 1.00, should be 0.50
"""

import torch
from flash_attention_softmax_n import flash_attention_n_triton

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, 128, 64, device="cuda", dtype=torch.float16) for _ in range(3))
v.requires_grad_()
out = flash_attention_n_triton(0 * q, k, v, softmax_n_param=128.0)
out.sum().backward()
got, want = v.grad[0, 0, 0, 0].item(), 128 / (128 + 128)  # 128 queries, each with weights of 1 / (n + 128)
assert abs(got - want) < 0.01, f"dv is {got:.2f}, should be {want:.2f}"
