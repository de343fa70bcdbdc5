"""Without a mask, the zeros that pad k and v to a whole tile are counted as keys.

number: 110
package: pytorch/executorch 2026-08-06
law: padding_keys_count_nothing, single_key_is_copied, out_matches_the_definition
case: batch=1 nheads=1 nheads_k=1 seqlen_q=1 seqlen_k=1 headdim=64 dtype=bfloat16
consequence: Unless causal, lengths that the tile (32 to 128 keys) does not divide give wrong
    results. Head dims that are not powers of two are not affected.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: with one key, out differs from v by 2.43
"""

import os
import sys

import torch

sys.path.insert(0, os.environ["FLASH_ATTEST_WILD_EXECUTORCH"])
from sdpa import sdpa

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, 1, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
error = (sdpa(q, k, v) - v).abs().max().item()
assert error < 0.01, f"with one key, out differs from v by {error:.2f}"
