"""The backward raises an error if there is a bias.

number: 100
package: simpler-flash 1.3.5
law: none: a bias is left out of the adapter
case: seqlen_q=64 seqlen_k=64 headdim=64 dtype=float16 bias=matrix
consequence: No bias can be used in training: the forward takes 3 dimensions, the backward 4.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError
"""

import sys
from importlib.util import find_spec

import torch

sys.path += find_spec("simpler_flash").submodule_search_locations  # its __init__ needs torchvision
from flashattention import flash_attn_func

q, k, v = (torch.ones(1, 64, 1, 64, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(3))
out, lse = flash_attn_func(q, k, v, torch.zeros(1, 64, 64, device="cuda"), False, None)
out.sum().backward()
