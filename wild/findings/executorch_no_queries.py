"""With no queries and grouped heads, sdpa raises ZeroDivisionError.

number: 113
package: pytorch/executorch 2026-08-06
law: no_queries_give_no_gradient
case: batch=1 nheads=2 nheads_k=1 seqlen_q=0 seqlen_k=1 headdim=64 dtype=bfloat16
consequence: A chunk without queries raises an error, where PyTorch returns an empty tensor.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: ZeroDivisionError: division by zero
"""

import os
import sys

import torch

sys.path.insert(0, os.environ["FLASH_ATTEST_WILD_EXECUTORCH"])
from sdpa import sdpa

q, k = (torch.ones(1, nheads, seqlen, 64, device="cuda", dtype=torch.bfloat16) for nheads, seqlen in ((2, 0), (1, 1)))
assert sdpa(q, k, k, enable_gqa=True).shape == q.shape
