"""In flash_attention_full_triton, a head 2^31 elements past the first has a negative offset.

number: 134
package: cuda-triton-multiarch 0.1.3
law: tensors_beyond_2_31_elements
case: seqlen_q=576 seqlen_k=576 headdim=64 dtype=float16 nheads=58368
consequence: Tensors that span 2^31 elements or more give wrong results, or an illegal access. The
    number of a head and its stride are both of 32 bits, and so is their product.
found: 2026-11-26
status: not reported
gpu: needed for 4 GiB; seen on an H200
shows: AssertionError: out of the last head is 0.0, should be 1
"""

import contextlib

import torch
from kernels.flash_attention_full import flash_attention_full_triton

x, last = torch.ones(1, 58368, 576, 64, device="cuda", dtype=torch.float16), 0.0  # 2^31 + 4194304 elements, 4 GiB
with contextlib.suppress(RuntimeError):  # an illegal access
    last = flash_attention_full_triton(x, x, x)[0, -1].float().mean().item()
assert abs(last - 1) < 0.01, f"out of the last head is {last}, should be 1"
