"""The chunks of cu_seqlens are cached by object: after a change in place, the old ones are used.

number: 31
package: fla-core 0.6.0
law: answers_follow_lengths_and_tables
case: seqlen_q=129 seqlen_k=129 headdim=64 dtype=float32 causal=True neighbours=one
consequence: A cu_seqlens buffer that is refilled, as for CUDA graphs, gives wrong rows, unless
    FLA_DISABLE_TENSOR_CACHE=1.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: AssertionError: 131 rows of out differ from out with a copy of cu_seqlens
"""

import torch
from fla.ops.attn.parallel import parallel_attn

torch.manual_seed(0)
q, k, v = torch.randn(3, 1, 260, 1, 16, device="cuda")
cu_seqlens = torch.tensor([0, 259, 260], device="cuda")
parallel_attn(q, k, v, cu_seqlens=cu_seqlens)
cu_seqlens[1] = 1  # two sequences of other lengths, in the same tensor
out, right = (parallel_attn(q, k, v, cu_seqlens=cu) for cu in (cu_seqlens, cu_seqlens.clone()))
wrong = (out != right).any(-1).sum().item()
assert wrong == 0, f"{wrong} rows of out differ from out with a copy of cu_seqlens"
