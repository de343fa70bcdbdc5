"""With a negative softmax_scale, the least score is taken for the largest, and lse overflows.

number: 98
package: simpler-flash 1.3.5
law: negative_scale_is_negated_q
case: seqlen_q=64 seqlen_k=64 headdim=64 dtype=float16 softmax_scale=-0.25
consequence: Hidden keys, or scores that differ by 89, give inf in lse and NaN in out.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: lse is inf, should be 100.0
"""

import sys
from importlib.util import find_spec

import torch

sys.path += find_spec("simpler_flash").submodule_search_locations  # its __init__ needs torchvision
from flashattention import flash_attn_func

q = torch.ones(1, 64, 1, 64, device="cuda", dtype=torch.float16)
k = torch.zeros_like(q)
k[:, 0] = -100 / 64  # its score is 100, the others are 0
lse = flash_attn_func(q, k, q, None, False, -1.0)[1][0, 0, 0].item()
assert abs(lse - 100) < 0.1, f"lse is {lse}, should be 100.0"
