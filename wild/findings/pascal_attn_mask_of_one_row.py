"""A mask that broadcasts over queries raises an error if there are more of them than tile_size.

number: 82
package: pascal-attn 0.1.0
law: biased_attention_matches_the_definition, broadcast_bias_equals_its_copy
case: seqlen_q=65 seqlen_k=1 headdim=1 dtype=float16 bias=vector bias_mask=alibi
consequence: A padding mask, documented as broadcastable, fails from 65 queries on by default.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: a mask of one row raises RuntimeError
"""

import torch
from pascal_attn import tiled_attention

x = torch.ones(1, 1, 65, 1)
raised = "nothing"
try:
    tiled_attention(x, x, x, mask=torch.zeros(1, 1, 1, 65))
except RuntimeError:
    raised = "RuntimeError"
assert raised == "nothing", f"a mask of one row raises {raised}"
