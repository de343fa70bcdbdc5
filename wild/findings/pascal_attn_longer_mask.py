"""A mask of more keys than there are is cut, without an error.

number: 97
package: pascal-attn 0.1.0
law: calls_outside_the_promise_raise_or_are_right
case: seqlen_q=1 seqlen_k=2 headdim=1 dtype=float32 bias=matrix, of 3 keys
consequence: A mask for other lengths, which PyTorch refuses, is taken for one that begins at key 0.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: raises nothing, should raise an error
"""

import torch
from pascal_attn import tiled_attention

x, raised = torch.ones(1, 1, 2, 1), "nothing"
try:
    tiled_attention(x, x, x, mask=torch.zeros(1, 1, 2, 3))
except (RuntimeError, ValueError):
    raised = "an error"
assert raised == "an error", f"raises {raised}, should raise an error"
