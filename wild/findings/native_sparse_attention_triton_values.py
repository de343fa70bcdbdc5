"""dq misses the columns of v past the head dim of q.

number: 116
package: XunhaoLai/native-sparse-attention-triton 2025-05-23
law: gradients_match_the_definition
case: batch=1 nheads=1 nheads_k=1 seqlen_q=2 seqlen_k=2 headdim=32 headdim_v=64 dtype=float16
consequence: Values wider than queries are accepted, but training with them gets a wrong dq.
found: 2026-11-26
status: reported https://github.com/XunhaoLai/native-sparse-attention-triton/issues/27
gpu: seen on an H200
shows: AssertionError: dq is 0, should be 16
"""

import os
import sys

import torch

sys.path.insert(0, os.environ["FLASH_ATTEST_WILD_NATIVE_SPARSE_ATTENTION_TRITON"])
from native_sparse_attention.ops.triton.flash_attention import flash_attention_varlen

q = torch.zeros(2, 1, 32, device="cuda", dtype=torch.float16, requires_grad=True)
k = torch.arange(2, device="cuda", dtype=torch.float16).view(2, 1, 1).repeat(1, 1, 32)  # v is 0 and 1, too
ends = torch.tensor([0, 2], device="cuda", dtype=torch.int32)
flash_attention_varlen(q, k, k.repeat(1, 1, 2), ends, ends, 2, 2, sm_scale=1.0).sum().backward()  # each weight is 1/2
assert (q.grad == 16).all(), f"dq is {q.grad.mean().item():.3g}, should be 16"  # 1/2 * 1/2 * 64 columns
