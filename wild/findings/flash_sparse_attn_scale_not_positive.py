"""A scale of 0 gives NaN if 64 does not divide the length: hidden scores are 0 * -inf.

number: 48
package: flash-sparse-attn 2.0.6
law: scale_zero_is_q_zero, negative_scale_is_negated_q
case: seqlen_q=1 seqlen_k=1 headdim=32 dtype=float16 softmax_scale=0.0
consequence: softmax_scale is documented without a range. Negative scales give wrong values, too.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: out is off by nan
"""

import sys
from unittest.mock import MagicMock

import torch

sys.modules |= {f"triton_kernels{x}": MagicMock() for x in ("", ".matmul_ogs", ".numerics")}  # unused here
from flash_sparse_attn import flash_dense_attn_func  # noqa: E402

torch.manual_seed(0)
q, k, v = (torch.randn(1, 32, 1, 64, device="cuda", dtype=torch.float16) for _ in range(3))
out = flash_dense_attn_func(q, k, v, softmax_scale=0.0, is_autotune=False)
error = (out - v.double().mean(1, keepdim=True)).abs().max().item()
assert error < 0.01, f"out is off by {error:.2f}"
