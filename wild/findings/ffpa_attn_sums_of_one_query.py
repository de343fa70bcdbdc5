"""The scores of a single query, and its sums of P v, are rounded to the dtype of the inputs.

number: 142
package: ffpa-attn 0.2.4
law: single_query_matches_the_definition, biased_attention_matches_the_definition
case: seqlen_q=1 seqlen_k=512 headdim=64 dtype=bfloat16 regime=shifted_up
consequence: Decoding by the kernels that split the keys is less exact than the rest, and far off
    where scores are large: in bfloat16, scores near 160 are rounded to about whole numbers. In
    float16, scores beyond 65504 before the scale are infinite and out is NaN. The README promises
    head dims up to 1024 "without any precision loss".
found: 2026-11-27
status: not reported
gpu: seen on an H200
shows: AssertionError: out is off by 0.52 for one query, by 0.002 if it is given twice
"""

import torch
from ffpa_attn import ffpa_attn_func

torch.manual_seed(0)
q, k, v = (torch.randn(1, 1, n, 320, device="cuda", dtype=torch.bfloat16) for n in (1, 1024, 1024))
q, k = q + 3, k + 3  # scores are about 3 * 3 * 320 / 18 = 160
want = (q.double() @ k.double().mT / 320**0.5).softmax(-1) @ v.double()
one, two = ((ffpa_attn_func(q.repeat(1, 1, n, 1), k, v) - want).abs().max().item() for n in (1, 2))
assert one < 4 * two, f"out is off by {one:.2g} for one query, by {two:.2g} if it is given twice"
