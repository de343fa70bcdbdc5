"""With position_method="alibi", the PyTorch and Triton backends of a module do not agree.

number: 107
package: trinix 0.1.4
law: none: the laws judge the functional interface
case: FastMultiHeadSelfAttention(64, 2, position_method="alibi"), batch=1 seqlen=64
consequence: The Triton backend adds the ALiBi bias twice, as a mask and by its slopes.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: the backends differ by 0.13
"""

import torch
from trinix import FastMultiHeadSelfAttention

x = torch.randn(1, 64, 64, device="cuda")
module = FastMultiHeadSelfAttention(64, 2, kernel_type="pytorch", position_method="alibi").cuda()
right = module(x)
module.kernel_type = "triton"
error = (module(x) - right).abs().max().item()
assert error < 0.01, f"the backends differ by {error:.2f}"
