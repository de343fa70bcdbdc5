"""The running maximum is taken before the scale, so a negative softmax_scale makes out NaN.

number: 46
package: flash-attn-triton 0.1.1
law: negative_scale_is_negated_q
case: seqlen_q=128 seqlen_k=128 headdim=32 dtype=float16 nheads=2 softmax_scale=-0.5 regime=peaked
consequence: A negative softmax_scale gives NaN where scores are large, without an error.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: 8192 of 8192 elements of out are NaN
"""

import sys

import torch
import triton

sys.modules["triton.tools.experimental_descriptor"] = triton  # the package imports it, and uses nothing of it
from flash_attn_triton import flash_attn_func  # noqa: E402

torch.manual_seed(0)
q, k, v = (8 * torch.randn(1, 128, 1, 64, device="cuda", dtype=torch.float16) for _ in range(3))
nan = flash_attn_func(q, k, v, softmax_scale=-0.125).isnan().sum().item()
assert nan == 0, f"{nan} of 8192 elements of out are NaN"
