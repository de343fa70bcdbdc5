"""softmax_n gives NaN for scores of -100, even without n.

number: 40
package: flash-attention-softmax-n 0.3.2
law: single_key_is_copied, single_query_matches_the_definition
case: seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32 regime=shifted_down
consequence: softmax_n is documented as numerically stable. slow_attention_n, which calls it, gives
    NaN, too.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: softmax is [nan, nan], should be [0.5, 0.5]
"""

import torch
from flash_attention_softmax_n import softmax_n

got = softmax_n(torch.tensor([-100.0, -100.0])).tolist()
assert got == [0.5, 0.5], f"softmax is {got}, should be [0.5, 0.5]"
