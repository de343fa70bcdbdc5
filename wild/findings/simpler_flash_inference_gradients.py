"""Gradients are inference tensors: changing one in place raises an error.

number: 95
package: simpler-flash 1.3.5
law: none: the contract check finds it, before any law
case: seqlen_q=64 seqlen_k=64 headdim=64 dtype=float16
consequence: Gradients that torch.autograd.grad returns cannot be scaled in place.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: dv is an inference tensor: changing it in place raises an error
"""

import sys
from importlib.util import find_spec

import torch

sys.path += find_spec("simpler_flash").submodule_search_locations  # its __init__ needs torchvision
from flashattention import flash_attn_func

q, k, v = (torch.ones(1, 64, 1, 64, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(3))
out, lse = flash_attn_func(q, k, v, None, False, None)
dv = torch.autograd.grad(out.sum(), v)[0]
assert not dv.is_inference(), "dv is an inference tensor: changing it in place raises an error"
