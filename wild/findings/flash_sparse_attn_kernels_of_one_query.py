"""After a backward of one query, a later backward reads and writes one row alone.

number: 124
package: flash-sparse-attn 2.0.6
law: gradients_match_the_definition
case: seqlen_q=33 seqlen_k=33 headdim=32 dtype=float16, after seqlen_q=1 in the same process
consequence: Triton compiles a kernel for seqlen_q = 1, and the package keeps it for every length.
    A process whose first backward has one query trains on wrong gradients from then on.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: a column of dv sums to inf, should be 33
"""

import sys
from unittest.mock import MagicMock

import torch

sys.modules |= {f"triton_kernels{x}": MagicMock() for x in ("", ".matmul_ogs", ".numerics")}  # unused here
from flash_sparse_attn import flash_dense_attn_func  # noqa: E402

for n in (1, 33):
    q, k, v = torch.randn(3, 1, n, 1, 64, device="cuda").half().requires_grad_()
    dv = torch.autograd.grad(flash_dense_attn_func(q, k, v, is_autotune=False).sum(), v)[0]
total = dv.double().sum(1).nan_to_num(torch.inf).max().item()  # of each query's weights, which sum to 1
assert abs(total - 33) < 0.5, f"a column of dv sums to {total:.3g}, should be 33"
