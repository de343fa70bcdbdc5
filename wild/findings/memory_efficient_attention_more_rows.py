"""If chunks do not divide the number of queries, out has more rows than q.

number: 73
package: memory-efficient-attention 0.1.3
law: contract_is_kept, queries_beyond_65535
case: seqlen_q=1030 seqlen_k=1 headdim=1 dtype=float32
consequence: For more than 1,024 queries, out has the wrong shape, unless the default chunk of
    1,024 divides their number.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: out has 2048 rows, should have 1030
"""

import sys
from unittest.mock import MagicMock

import torch

sys.modules["jax"] = MagicMock()  # imported, not used by the part in PyTorch
from memory_efficient_attention import efficient_dot_product_attention_pt  # noqa: E402

x = torch.ones(1030, 1, 1)
out = efficient_dot_product_attention_pt(x, x, x)
assert len(out) == 1030, f"out has {len(out)} rows, should have 1030"
