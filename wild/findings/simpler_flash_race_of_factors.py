"""In the forward, each row's factor is stored and loaded by other warps without a barrier.

number: 96
package: simpler-flash 1.3.5
law: no_race_is_traced, out_matches_the_definition
case: seqlen_q=33 seqlen_k=1 headdim=8 dtype=float16
consequence: Where a warp runs ahead, its rows of out are scaled by stale memory. On an H200 single
    rows are wrong, not on every run.
found: 2026-11-26
status: not reported
gpu: seen on an H200, with this case
shows: AssertionError: out is off by 2.45 from v of the only key
"""

import sys
from importlib.util import find_spec

import torch

sys.path += find_spec("simpler_flash").submodule_search_locations  # its __init__ needs torchvision
from flashattention import flash_attn_func

q, k, v = (torch.randn(16, n, 8, 8, device="cuda").half() for n in (33, 1, 1))
error = (flash_attn_func(q, k, v)[0] - v).abs().nan_to_num(torch.inf).max().item()  # each row sees one key
assert error < 0.01, f"out is off by {error:.2f} from v of the only key"
