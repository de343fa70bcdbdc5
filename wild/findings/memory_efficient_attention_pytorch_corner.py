"""With causal=True and more keys than queries, memory_efficient=True changes the result.

number: 78
package: memory-efficient-attention-pytorch 0.1.6
law: none: a law judges one function, and each of the two is right for its own corner
case: batch=1 nheads=1 nheads_k=1 seqlen_q=1 seqlen_k=2 headdim=64 dtype=float32 causal=True
consequence: An option that saves memory aligns the mask top left. Without it, the mask is aligned
    bottom right.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: the two differ by 1.05
"""

import torch
from memory_efficient_attention_pytorch import Attention

torch.manual_seed(0)
attention = Attention(dim=64, heads=1, causal=True)
x, context = torch.randn(1, 1, 64), torch.randn(1, 8, 64)
plain, chunked = (attention(x, context, memory_efficient=option) for option in (False, True))
error = (plain - chunked).abs().max().item()
assert error < 1e-4, f"the two differ by {error:.2f}"
