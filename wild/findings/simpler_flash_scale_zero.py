"""softmax_scale=0 is taken for None, the default scale.

number: 97
package: simpler-flash 1.3.5
law: scale_zero_is_q_zero
case: seqlen_q=64 seqlen_k=64 headdim=64 dtype=float16 softmax_scale=0.0
consequence: A scale of 0 gives attention with the scale 1 / sqrt(headdim).
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: lse is 12.16, should be 4.16
"""

import sys
from importlib.util import find_spec

import torch

sys.path += find_spec("simpler_flash").submodule_search_locations  # its __init__ needs torchvision
from flashattention import flash_attn_func

q = torch.ones(1, 64, 1, 64, device="cuda", dtype=torch.float16)
lse = flash_attn_func(q, q, q, None, False, 0.0)[1][0, 0, 0].item()
assert abs(lse - 4.16) < 0.01, f"lse is {lse:.2f}, should be 4.16"  # log(64): all scores are 0
