"""use_sliding_window=True makes all outputs of a module NaN: its mask has elements of 0 * inf.

number: 106
package: trinix 0.1.4
law: none: the laws judge the functional interface
case: FastMultiHeadSelfAttention(64, 2, use_sliding_window=True, sliding_window_size=16)
consequence: Modules with a sliding window cannot be used, with any backend.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: 4096 of 4096 elements of out are NaN
"""

import torch
from trinix import FastMultiHeadSelfAttention

options = dict(kernel_type="pytorch", use_sliding_window=True, sliding_window_size=16)
module = FastMultiHeadSelfAttention(64, 2, **options).cuda()
out = module(torch.randn(1, 64, 64, device="cuda"))
nan = out.isnan().sum().item()
assert nan == 0, f"{nan} of {out.numel()} elements of out are NaN"
