"""lse requires a gradient, but a gradient that flows into it is ignored.

number: 101
package: simpler-flash 1.3.5
law: none: the backward is left out of the adapter
case: seqlen_q=64 seqlen_k=64 headdim=64 dtype=float16
consequence: A loss on lse, as for a z-loss or a merge of parts, trains nothing, without an error.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: the gradient of lse with respect to q is 0.0, should be 1
"""

import sys
from importlib.util import find_spec

import torch

sys.path += find_spec("simpler_flash").submodule_search_locations  # its __init__ needs torchvision
from flashattention import flash_attn_func

q, k, v = (torch.ones(1, 64, 1, 64, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(3))
out, lse = flash_attn_func(q, k, v, None, False, 1.0)
gradient = torch.autograd.grad(lse[0, 0, 0], q)[0][0, 0, 0, 0].item()
assert abs(gradient - 1) < 0.01, f"the gradient of lse with respect to q is {gradient}, should be 1"
