"""With one head, the stride of the head axis is taken for the stride of the batch axis.

number: 118
package: triton-lang/kernels 2024-08-15
law: out_matches_the_definition, neighbours_change_no_bit
case: batch=2 nheads=1 nheads_k=1 seqlen_q=128 seqlen_k=128 headdim=32 dtype=float16
consequence: A contiguous q that was transposed from (batch, seqlen, 1, headdim) is read at wrong
    positions.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: batch 1 is off by 1.23
"""

import os
import sys

import torch

sys.path.insert(0, os.environ["FLASH_ATTEST_WILD_TRITON_LANG_KERNELS"])
from flash_attention import attention

torch.manual_seed(0)
q = torch.randn(2, 128, 1, 32, device="cuda", dtype=torch.float16).transpose(1, 2)  # is_contiguous() is True
x = q.double()
error = (attention(q, q, q, False, 1.0)[1] - ((x @ x.mT).softmax(-1) @ x)[1]).abs().max().item()
assert error < 0.01, f"batch 1 is off by {error:.2f}"
