"""With a length that 128 does not divide, rows past the end of out are overwritten.

number: 120
package: triton-lang/kernels 2024-08-15
law: calls_outside_the_promise_raise_or_are_right
case: batch=1 nheads=1 nheads_k=1 seqlen_q=64 seqlen_k=64 headdim=32 dtype=float16
consequence: Other tensors are overwritten, without an error.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: rows past the end of out were written
"""

import os
import sys

import torch

sys.path.insert(0, os.environ["FLASH_ATTEST_WILD_TRITON_LANG_KERNELS"])
import flash_attention

pool = torch.zeros(1, 1, 128, 32, device="cuda", dtype=torch.float16)
flash_attention.torch.empty_like = lambda x: pool[:, :, :64]  # out
flash_attention.torch.empty = lambda size, **options: torch.zeros(2, *size, **options)  # lse, with room after it
flash_attention.attention(*torch.ones(3, 1, 1, 64, 32, device="cuda", dtype=torch.float16), False, 1.0)
assert not pool[:, :, 64:].any(), "rows past the end of out were written"
