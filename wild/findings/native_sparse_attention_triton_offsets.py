"""Offsets have 32 bits: a sequence 2^31 elements past the first is read 2^31 elements before it.

number: 117
package: XunhaoLai/native-sparse-attention-triton 2025-05-23
law: offsets_need_64_bits
case: batch=2 nheads=1 nheads_k=1 seqlen_q=2 seqlen_k=2 headdim=32 dtype=float16
consequence: Packed tensors that span more than 2^31 elements are read and written at wrong
    addresses.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: out is 0, should be 3
"""

import os
import sys

import torch

sys.path.insert(0, os.environ["FLASH_ATTEST_WILD_NATIVE_SPARSE_ATTENTION_TRITON"])
from native_sparse_attention.ops.triton.flash_attention import flash_attention_varlen

pool = torch.empty(5, 2**30, device="cuda", dtype=torch.float16)  # 10 GiB
pool[:, :32] = torch.tensor([0, 0, 0, 0, 3], device="cuda").view(5, 1)
x, ends = pool[2:, None, :32], torch.tensor([0, 2, 3], device="cuda", dtype=torch.int32)
out = flash_attention_varlen(x, x, x, ends, ends, 2, 2)[2].mean().item()  # the second sequence has one key, 3
assert out == 3, f"out is {out:.3g}, should be 3"
