"""Without n, out is NaN in rows whose scores are all far below 0, here -128.

number: 33
package: flash-attention-softmax-n 0.3.2
law: huge_scores_match_the_definition, v_dv_equals_out_dout
case: seqlen_q=128 seqlen_k=128 headdim=64 dtype=float16 regime=shifted_down
consequence: The output should not change if all scores of a row are shifted, but here low scores
    give NaN.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: AssertionError: out is off by nan
"""

import torch
from flash_attention_softmax_n import flash_attention_n_triton

torch.manual_seed(0)
q = torch.full((1, 1, 128, 64), 4.0, device="cuda", dtype=torch.float16)  # each score is -16 * 64 / 8 = -128
v = torch.randn_like(q)
error = (flash_attention_n_triton(q, -q, v) - v.double().mean(2, keepdim=True)).abs().max().item()
assert error < 0.01, f"out is off by {error:.2f}"
