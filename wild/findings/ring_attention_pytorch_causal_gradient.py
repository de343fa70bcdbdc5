"""With causal=True and more keys than queries, the backward uses another mask than the forward.

number: 83
package: ring-attention-pytorch 0.5.20
law: gradients_match_the_definition, q_dq_equals_k_dk, v_dv_equals_out_dout
case: batch=1 nheads=1 nheads_k=1 seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 causal=True
consequence: out is right (bottom right), but the gradients are those of a mask aligned top left.
found: 2026-11-26
status: not reported
gpu: seen on an H200, where the laws fail; the proof runs on a CPU
shows: AssertionError: dv is off by 0.66
"""

import torch
from ring_attention_pytorch import ring_flash_attn

torch.manual_seed(0)
q, k, v = torch.randn(1, 5, 1, 64), torch.randn(1, 8, 1, 64), torch.randn(1, 8, 1, 64, requires_grad=True)
out, hidden = ring_flash_attn(q, k, v, causal=True), torch.ones(5, 8, dtype=torch.bool).triu(1 + 8 - 5)
s = (torch.einsum("bihd,bjhd->bhij", q, k) / 8).masked_fill(hidden, -torch.inf)
expected = torch.einsum("bhij,bjhd->bihd", s.softmax(-1), v)  # equal to out
of_out, of_expected = (torch.autograd.grad(x.sum(), v)[0] for x in (out, expected))
error = (of_out - of_expected).abs().max().item()
assert error < 1e-4, f"dv is off by {error:.2f}"
