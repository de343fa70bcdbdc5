"""Each call of flash_attention_full_triton adds an entry to sys.path.

number: 19
package: cuda-triton-multiarch 0.1.3
law: none: the adapter restores sys.path, as contract_is_kept demands
case: seqlen_q=64 seqlen_k=64 headdim=64 dtype=float16
consequence: Imports become slower, and a folder outside the package is searched first.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: sys.path has 3 more entries
"""

import sys

import torch
from kernels.flash_attention_full import flash_attention_full_triton

q = torch.ones(1, 1, 64, 64, device="cuda", dtype=torch.float16)
before = len(sys.path)
for _ in range(3):
    flash_attention_full_triton(q, q, q)
assert len(sys.path) == before, f"sys.path has {len(sys.path) - before} more entries"
