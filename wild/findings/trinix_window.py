"""A row is NaN if its window does not reach the first 64 keys.

number: 104
package: trinix 0.1.4
law: query_sees_exactly_its_window, ragged_sizes_match_the_definition
case: seqlen_q=33 seqlen_k=33 headdim=32 dtype=float16 window=0: (if tiles have 32 keys)
consequence: With a sliding window, each row past the window of the first tile of keys is NaN.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: 152 of 200 rows are NaN
"""

import torch
from trinix import triton_attn_func

q, k, v = (torch.randn(1, 200, 1, 64, device="cuda", dtype=torch.float16) for _ in range(3))
nan = triton_attn_func(q, k, v, window_size=(16, 16)).isnan().any(-1).sum().item()
assert nan == 0, f"{nan} of 200 rows are NaN"
