"""Offsets have 32 bits: the offset of a head 2^31 elements past the first is negative.

number: 131
package: triton-lang/kernels 2024-08-15
law: tensors_beyond_2_31_elements
case: seqlen_q=384 seqlen_k=384 headdim=128 dtype=float16 nheads=43776
consequence: Tensors that span 2^31 elements or more give wrong results, or an illegal access. The
    number of a head and its stride are both of 32 bits, and so is their product.
found: 2026-11-26
status: not reported
gpu: needed for 4 GiB; seen on an H200
shows: AssertionError: out of the last head is 0.0, should be 1
"""

import contextlib
import os
import sys

import torch

sys.path.insert(0, os.environ["FLASH_ATTEST_WILD_TRITON_LANG_KERNELS"])
from flash_attention import attention

x, last = torch.ones(1, 43776, 384, 128, device="cuda", dtype=torch.float16), 0.0  # 2^31 + 4194304 elements, 4 GiB
with contextlib.suppress(RuntimeError):  # an illegal access
    last = attention(x, x, x, False, 0.1)[0, -1].float().mean().item()
assert last == 1, f"out of the last head is {last}, should be 1"
