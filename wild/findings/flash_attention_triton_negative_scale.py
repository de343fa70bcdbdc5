"""A negative softmax_scale gives NaN: the -inf of hidden keys is multiplied by it.

number: 51
package: flash_attention_triton 0.1.1
law: negative_scale_is_negated_q
case: seqlen_q=2 seqlen_k=2 headdim=16 dtype=float16 softmax_scale=-0.5
consequence: Calls with a negative scale give NaN, without an error.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: 4096 of 4096 elements of out are NaN
"""

import torch
from flash_attention_triton import flash_attention_v2

q, k, v = (torch.randn(1, 1, 64, 64, device="cuda", dtype=torch.float16) for _ in range(3))
out = flash_attention_v2(q, k, v, softmax_scale=-0.125)  # the attention of -q, with a scale of 0.125
nan = out.isnan().sum().item()
assert nan == 0, f"{nan} of {out.numel()} elements of out are NaN"
