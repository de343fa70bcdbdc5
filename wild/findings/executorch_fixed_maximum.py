"""Decoding with kv_len subtracts 5 instead of the row's maximum, so a score of 100 gives NaN.

number: 111
package: pytorch/executorch 2026-08-06
law: huge_scores_match_the_definition, shifting_all_scores_changes_only_lse, winning_key_is_copied
case: batch=1 nheads=1 nheads_k=1 seqlen_q=1 seqlen_k=200 headdim=64 dtype=bfloat16
consequence: Decoding gives NaN for scores above 93, and 0 for rows whose scores are all below -100.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: out is nan, should be 1
"""

import os
import sys

import torch

sys.path.insert(0, os.environ["FLASH_ATTEST_WILD_EXECUTORCH"])
from sdpa import sdpa

one = torch.ones(1, 1, 256, 64, device="cuda", dtype=torch.bfloat16)
out = sdpa(one[:, :, :1] * 12.5, one, one, kv_len=torch.tensor(200, device="cuda"))  # each score is 12.5 * 64 / 8 = 100
assert out.mean().item() == 1, f"out is {out.mean().item():.3g}, should be 1"
