"""With gqa_interleave=True, the backward uses other key heads than the forward.

number: 114
package: XunhaoLai/native-sparse-attention-triton 2025-05-23
law: contract_is_kept
case: batch=1 nheads=6 nheads_k=2 seqlen_q=16 seqlen_k=16 headdim=32 dtype=float16
consequence: Training with interleaved heads gets wrong dk and dv, unless nheads is nheads_k
    squared.
found: 2026-11-25
status: reported https://github.com/XunhaoLai/native-sparse-attention-triton/issues/27
gpu: seen on an H200
shows: AssertionError: dv is 1.5, should be 3
"""

import os
import sys

import torch

sys.path.insert(0, os.environ["FLASH_ATTEST_WILD_NATIVE_SPARSE_ATTENTION_TRITON"])
from native_sparse_attention.ops.triton.flash_attention import flash_attention_varlen

q = torch.zeros(16, 6, 32, device="cuda", dtype=torch.float16)
k, v = (torch.ones(17, 2, 32, device="cuda", dtype=torch.float16)[:16].requires_grad_() for _ in range(2))
ends = torch.tensor([0, 16], device="cuda", dtype=torch.int32)
flash_attention_varlen(q, k, v, ends, ends, 16, 16, gqa_interleave=True).sum().backward()  # each weight is 1/16
assert (v.grad == 3).all(), f"dv is {v.grad.mean().item():.3g}, should be 3"
