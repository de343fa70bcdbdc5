"""The backward of flash_attn_func(q, k, v) raises an error, unless bias is passed as None.

number: 94
package: simpler-flash 1.3.5
law: none: the adapter gives all arguments
case: seqlen_q=64 seqlen_k=64 headdim=64 dtype=float16
consequence: The plain call cannot be used in training.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: IndexError: tuple index out of range
"""

import sys
from importlib.util import find_spec

import torch

sys.path += find_spec("simpler_flash").submodule_search_locations  # its __init__ needs torchvision
from flashattention import flash_attn_func

q, k, v = (torch.ones(1, 64, 1, 64, device="cuda", dtype=torch.float16, requires_grad=True) for _ in range(3))
flash_attn_func(q, k, v)[0].sum().backward()
