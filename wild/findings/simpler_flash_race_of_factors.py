"""In the forward, each row's factor is stored and loaded by other warps without a barrier.

number: 96
package: simpler-flash 1.3.5
law: no_race_is_traced, out_matches_the_definition
case: seqlen_q=64 seqlen_k=64 headdim=64 dtype=float16
consequence: Where a warp runs ahead, as in the emulator, its rows of out are scaled by stale
    memory.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: out is off by 0.71
"""

import sys
from importlib.util import find_spec

import torch

sys.path += find_spec("simpler_flash").submodule_search_locations  # its __init__ needs torchvision
from flashattention import flash_attn_func

q, k, v = torch.randn(3, 1, 64, 1, 64, device="cuda").half()
out = flash_attn_func(q, k, v)[0]
right = (q[:, :, 0].double() @ k[:, :, 0].double().mT / 8).softmax(-1) @ v[:, :, 0].double()
error = (out[:, :, 0] - right).abs().nan_to_num(torch.inf).max().item()
assert error < 0.01, f"out is off by {error:.2f}"
