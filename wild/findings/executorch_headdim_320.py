"""Head dim 320 is taken for 256: 64 columns of q, k and v are not read, and of out not written.

number: 83
package: pytorch/executorch 2026-08-06
law: none: no law tries head dims that are not declared above 256
case: batch=1 nheads=1 nheads_k=1 seqlen_q=1 seqlen_k=1 headdim=320 dtype=bfloat16
consequence: Head dims above 256 that are no power of two give wrong results, without an error.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: 64 columns of out were not written
"""

import os
import sys

import torch

sys.path.insert(0, os.environ["FLASH_ATTEST_WILD_EXECUTORCH"])
import sdpa

q = torch.ones(1, 1, 1, 320, device="cuda", dtype=torch.bfloat16)
sdpa.torch.empty = lambda *size, **options: torch.full(*size, 7.0, **options)  # what memory may hold
missing = (sdpa.sdpa(q, q, q) != 1).sum().item()
assert missing == 0, f"{missing} columns of out were not written"
