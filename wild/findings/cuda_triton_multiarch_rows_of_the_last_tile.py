"""Rows of the last tile are written into the next head.

number: 20
package: cuda-triton-multiarch 0.1.3
law: no_race_is_traced, repeats_agree
case: seqlen_q=65 seqlen_k=65 headdim=64 dtype=float16
consequence: Two heads race to write these rows, and the last head writes past the end of out.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: 32 rows of head 1 are written by head 0
"""

import torch
from kernels.flash_attention_full import flash_attention_full_kernel

x = torch.ones(2, 96, 64, device="cuda", dtype=torch.float16)
out = torch.zeros_like(x)
fixed = dict(IS_CAUSAL=True, BLOCK_Q=64, BLOCK_SEQ=64, BLOCK_DK=64)
flash_attention_full_kernel[(2, 1)](x, x, x, out, 96, 64, 1, 96 * 64, 96 * 64, 64, 1, **fixed)  # head 0 alone
rows = (out[1] != 0).any(-1).sum().item()
assert rows == 0, f"{rows} rows of head 1 are written by head 0"
