"""flash_attn_combine of a single part writes neither out nor lse.

number: 128
package: fa3-fwd 0.0.3
law: single_key_is_copied, lse_matches_the_definition, outputs_may_be_written_to
case: seqlen_q=1 seqlen_k=1 headdim=8 dtype=bfloat16, one part
consequence: A caller with a varying number of parts gets unwritten memory when there is one.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: out still holds the number that was there before
"""

import torch
from fa3_fwd_interface import flash_attn_combine

parts, lse = torch.randn(1, 1, 8, 2, 64, device="cuda"), torch.randn(1, 1, 2, 8, device="cuda").mT
out = torch.full((1, 8, 2, 64), 7.0, device="cuda")
got = flash_attn_combine(parts, lse, out=out, out_dtype=torch.float32)[0]
assert not (got == 7).all(), "out still holds the number that was there before"
