"""If chunks do not divide the number of keys, some keys are counted twice.

number: 72
package: memory-efficient-attention 0.1.3
law: out_matches_the_definition, gradients_match_the_definition
case: seqlen_q=1 seqlen_k=33 headdim=1 dtype=float32 with key_chunk_size=32
consequence: More than 4,096 keys give wrong results, unless the default chunk of 4,096 divides
    their number.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: out is 0.49, should be 0.33
"""

import sys
from unittest.mock import MagicMock

import torch

sys.modules["jax"] = MagicMock()  # imported, not used by the part in PyTorch
from memory_efficient_attention import efficient_dot_product_attention_pt  # noqa: E402

v = torch.tensor([0.0, 1.0, 0.0]).repeat_interleave(2000).view(6000, 1, 1)  # the mean is 1/3
out = efficient_dot_product_attention_pt(torch.zeros(1, 1, 1), torch.zeros(6000, 1, 1), v).item()
assert abs(out - 1 / 3) < 0.01, f"out is {out:.2f}, should be 0.33"
