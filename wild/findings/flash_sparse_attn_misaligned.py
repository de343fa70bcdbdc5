"""A call with a tensor that is not aligned, after one with aligned tensors, is a misaligned access.

number: 125
package: flash-sparse-attn 2.0.6
law: none: the adapter declares aligned tensors
case: seqlen_q=32 seqlen_k=32 headdim=64 dtype=float16, then q 2 bytes past a multiple of 16
consequence: The package keeps the kernel of the first call, which Triton compiled for addresses
    that are multiples of 16. A misaligned access raises an error, after which CUDA is unusable.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: the second call is a misaligned access
"""

import contextlib
import sys
from unittest.mock import MagicMock

import torch

sys.modules |= {f"triton_kernels{x}": MagicMock() for x in ("", ".matmul_ogs", ".numerics")}  # unused here
from flash_sparse_attn import flash_dense_attn_func as attention  # noqa: E402

q = [torch.randn(2049, device="cuda").half()[i : i + 2048].view(1, 32, 1, 64) for i in (0, 1)]
with contextlib.suppress(RuntimeError):
    sums = [attention(x, q[0], q[0], is_autotune=False).sum().item() for x in q]
assert "sums" in globals(), "the second call is a misaligned access"
