"""With causal and more queries than keys, rows are NaN if they see no key.

number: 51
package: flash_attention_x 0.0.1
law: rows_without_keys_give_zero, no_keys_give_zero, rows_without_keys_leave_the_others_alone
case: seqlen_q=2 seqlen_k=1 headdim=64 dtype=float16 causal=True
consequence: The first rows are NaN, and so is each sum over out.
found: 2026-11-25
status: not reported
gpu: not tried
shows: AssertionError: 16 of 32 rows are NaN
"""

import torch
from flash_attention_x import flash_attn_causal

q = torch.ones(1, 1, 32, 64, device="cuda", dtype=torch.float16)
k = torch.ones(1, 1, 16, 64, device="cuda", dtype=torch.float16)
rows = flash_attn_causal(q, k, k).isnan().any(-1).sum().item()
assert rows == 0, f"{rows} of 32 rows are NaN"
