"""PagedAttention(version=2) does not compile: its kernel reads a Python global, PARTITION_SIZE.

number: 64
package: flashnn 0.1.1
law: none: the adapter calls FlashAttention only
case: one key of headdim 64 in pages of 16
consequence: PagedAttention(version=2) raises a compilation error (Triton 3.7.1).
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: NameError("Cannot access global variable PARTITION_SIZE
"""

import torch
from flashnn import PagedAttention

q, pages = (torch.ones(1, 1, *s, device="cuda", dtype=torch.float16) for s in ((64,), (16, 64)))
zero = torch.zeros(1, device="cuda", dtype=torch.int32)
try:
    message = PagedAttention(version=2)(q, pages, pages, zero, 0.125, zero[None], zero + 1) is None and ""
except Exception as error:
    message = str(error).strip().splitlines()[-1].split(" from ")[0]
assert not message, message
