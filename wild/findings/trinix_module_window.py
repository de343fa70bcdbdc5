"""The sliding window of the modules is a mask of 0 * inf: the output is NaN with every backend.

number: 34
package: trinix 0.1.4
law: none: the laws judge the functional interface
case: FastMultiHeadSelfAttention(64, 2, use_sliding_window=True, sliding_window_size=16)
consequence: use_sliding_window=True turns every output of the layer into NaN.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: 4096 of 4096 elements are NaN
"""

import torch
from trinix import FastMultiHeadSelfAttention

options = dict(kernel_type="pytorch", use_sliding_window=True, sliding_window_size=16)
module = FastMultiHeadSelfAttention(64, 2, **options).cuda()
out = module(torch.randn(1, 64, 64, device="cuda"))
nan = out.isnan().sum().item()
assert nan == 0, f"{nan} of {out.numel()} elements are NaN"
