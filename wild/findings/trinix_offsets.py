"""Offsets have 32 bits: if rows are 2^31 - 1 elements apart, the third is read from elsewhere.

number: 109
package: trinix 0.1.4
law: offsets_need_64_bits
case: seqlen_q=4 seqlen_k=4 headdim=32 dtype=float16
consequence: Views of a large buffer, such as a key cache, give wrong values or an illegal access.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: out is 0.000, should be 0.333
"""

import torch
from trinix import triton_attn_func

memory = torch.empty(2**32 + 128, device="cuda", dtype=torch.float16)  # 8.6 GB, of which little is used on a CPU
rows = memory[64:].as_strided((1, 3, 1, 64), (0, 2**31 - 1, 0, 1))
memory[:128], rows[0, 1], rows[0, 2] = 0, 0, 1
out = triton_attn_func(rows, rows, rows)[0, 0].mean().item()  # a mean of 0, 0 and 1, as its query is 0
assert abs(out - 1 / 3) < 0.01, f"out is {out:.3f}, should be 0.333"
