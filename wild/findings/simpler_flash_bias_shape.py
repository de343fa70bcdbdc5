"""A bias of the documented shape, (batch, nheads, seqlen_q, seqlen_k), raises an error.

number: 99
package: simpler-flash 1.3.5
law: none: a bias is left out of the adapter
case: seqlen_q=64 seqlen_k=64 headdim=64 dtype=float16 bias=matrix
consequence: Only (batch, seqlen_q, seqlen_k) is accepted, so heads cannot have different biases.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: RuntimeError: Last 2 dimensions of bias must be (1, seqlen_k) or (seqlen_q, seqlen_k)
"""

import sys
from importlib.util import find_spec

import torch

sys.path += find_spec("simpler_flash").submodule_search_locations  # its __init__ needs torchvision
from flashattention import flash_attn_func

q, k, v = torch.ones(3, 1, 64, 1, 64, device="cuda", dtype=torch.float16)
flash_attn_func(q, k, v, torch.zeros(1, 1, 64, 64, device="cuda"))
