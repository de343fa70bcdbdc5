"""With 33 queries and keys whose scores are near -160, all of dq is NaN.

number: 47
package: flash-sparse-attn 2.0.6
law: no_dout_gives_no_gradient, gradients_match_the_definition
case: seqlen_q=1 seqlen_k=1 headdim=32 dtype=float16 regime=shifted_down
consequence: Lengths that 64 does not divide give NaN in training where scores are far below 0.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: 2112 of 2112 elements of dq are NaN
"""

import sys
from unittest.mock import MagicMock

import torch

sys.modules |= {f"triton_kernels{x}": MagicMock() for x in ("", ".matmul_ogs", ".numerics")}  # unused here
from flash_sparse_attn import flash_dense_attn_func  # noqa: E402

q, k = (torch.full((1, 33, 1, 64), x, device="cuda", dtype=torch.float16, requires_grad=True) for x in (4.5, -4.5))
flash_dense_attn_func(q, k, k, is_autotune=False).sum().backward()
bad = q.grad.isnan().sum().item()
assert bad == 0, f"{bad} of {q.numel()} elements of dq are NaN"
