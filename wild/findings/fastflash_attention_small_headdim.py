"""Head dim 8, which is documented and for which is_eligible returns True, does not compile.

number: 28
package: fastflash-attention 0.2.0
law: none: a head dim that raises an error breaks the contract before any law
case: headdim=8 dtype=bfloat16
consequence: Code that branches on is_eligible stops with an error instead of falling back. Head
    dims 1, 2 and 4 fail, too.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: Input shapes should have M >= 1, N >= 1 and K >= 16
"""

import torch
from fastflash_attention import fast_attention, is_eligible

q, k, v = (torch.randn(1, 1, 64, 8, device="cuda", dtype=torch.bfloat16) for _ in range(3))
assert is_eligible(q, k, v)
fast_attention(q, k, v)
