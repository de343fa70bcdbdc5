"""With more keys than queries, causal flash attention shifts its mask in the wrong direction.

number: 76
package: memory-efficient-attention-pytorch 0.1.6
law: alignment_is_as_declared, query_sees_exactly_its_prefix, out_matches_the_definition
case: batch=1 nheads=1 nheads_k=1 seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 causal=True
consequence: With n queries and m keys, query i sees keys up to i - (m - n), not i + (m - n). Rows
    that see no key get the mean of v.
found: 2026-11-25
status: not reported
gpu: not tried
shows: AssertionError: out is off by 2.14
"""

import torch
from memory_efficient_attention_pytorch.flash_attention import FlashAttentionFunction

torch.manual_seed(0)
q, k, v = torch.randn(1, 1, 40, 64), torch.randn(1, 1, 70, 64), torch.randn(1, 1, 70, 64)
out = FlashAttentionFunction.apply(q, k, v, None, True, 512, 1024)
hidden = torch.ones(40, 70, dtype=torch.bool).triu(1 + 70 - 40)  # as in its plain attention
expected = (q @ k.mT / 8).double().masked_fill(hidden, -torch.inf).softmax(-1) @ v.double()
error = (out - expected).abs().max().item()
assert error < 1e-4, f"out is off by {error:.2f}"
