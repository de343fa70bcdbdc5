"""Offsets have 32 bits: a key 2^31 elements past the first is read 2^31 elements before it.

number: 112
package: pytorch/executorch 2026-08-06
law: offsets_need_64_bits
case: batch=1 nheads=1 nheads_k=1 seqlen_q=1 seqlen_k=3 headdim=80 dtype=bfloat16
consequence: Large tensors, such as a large key cache, are read at wrong addresses.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: out is 0, should be 1
"""

import os
import sys

import torch

sys.path.insert(0, os.environ["FLASH_ATTEST_WILD_EXECUTORCH"])
from sdpa import sdpa

pool = torch.empty(5, 2**30, device="cuda", dtype=torch.bfloat16)  # 10 GiB
pool[:, :80] = torch.tensor([0, 0, 0, 0, 3], device="cuda").view(5, 1)
keys = pool[None, None, 2:, :80]  # 0, 0 and 3; an offset of -2^31 points to row 0
out = sdpa(torch.zeros_like(keys[:, :, :1]), keys, keys)
assert out.mean().item() == 1, f"out is {out.mean().item():.3g}, should be 1"
