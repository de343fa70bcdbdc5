"""With 33 keys whose scores are -20, dq is NaN in float16.

number: 115
package: XunhaoLai/native-sparse-attention-triton 2025-05-23
law: huge_scores_match_the_definition, gradients_match_the_definition
case: batch=1 nheads=1 nheads_k=1 seqlen_q=33 seqlen_k=33 headdim=64 dtype=float16
consequence: Without causal, lengths that 64 does not divide can give NaN in training.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: 2112 of 2112 elements of dq are NaN
"""

import os
import sys

import torch

sys.path.insert(0, os.environ["FLASH_ATTEST_WILD_NATIVE_SPARSE_ATTENTION_TRITON"])
from native_sparse_attention.ops.triton.flash_attention import flash_attention_varlen

q = torch.full((33, 1, 64), -2.5, device="cuda", dtype=torch.float16, requires_grad=True)
k = torch.ones_like(q)  # each score is -2.5 * 64 / 8 = -20
ends = torch.tensor([0, 33], device="cuda", dtype=torch.int32)
flash_attention_varlen(q, k, k, ends, ends, 33, 33).sum().backward()
assert q.grad.isnan().sum() == 0, f"{q.grad.isnan().sum()} of {q.numel()} elements of dq are NaN"
