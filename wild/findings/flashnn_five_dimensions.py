"""FlashAttention raises an error for inputs of five dimensions, which it documents for GQA.

number: 62
package: flashnn 0.1.1
law: none: the contract has inputs of four dimensions
case: query (1, 64, 1, 2, 64), which holds head_groups and heads_per_group
consequence: GQA works with inputs of four dimensions only.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: five dimensions give an AssertionError
"""

import torch
from flashnn import FlashAttention

q = torch.ones(1, 64, 1, 2, 64, device="cuda", dtype=torch.float16)
kind = "no error"
try:
    FlashAttention()(q, q, q, False)
except AssertionError:
    kind = "an AssertionError"
assert kind == "no error", f"five dimensions give {kind}"
