"""A bias of -inf over a whole chunk of keys makes out NaN.

number: 75
package: memory-efficient-attention 0.1.3
law: out_averages_the_keys_that_a_bias_leaves
case: seqlen_q=16 seqlen_k=64 headdim=2 dtype=float32 bias=vector bias_mask=left seed=1
consequence: A bias that hides the first 4,096 keys, the default chunk, gives NaN where other keys
    are visible.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: out is nan, should be 1
"""

import sys
from unittest.mock import MagicMock

import torch

sys.modules["jax"] = MagicMock()  # imported, not used by the part in PyTorch
from memory_efficient_attention import efficient_dot_product_attention_pt  # noqa: E402

x, bias = torch.ones(8192, 1, 1), torch.zeros(1, 1, 8192)
bias[..., :4096] = -torch.inf  # the first of two chunks
out = efficient_dot_product_attention_pt(x[:1], x, x, bias=bias).item()
assert out == 1, f"out is {out:.3g}, should be 1"
