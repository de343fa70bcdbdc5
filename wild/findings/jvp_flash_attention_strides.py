"""Backward compares strides of dimensions of size 1, which mean nothing, and refuses contiguous tensors.

number: 74
package: jvp-flash-attention 0.14.0
law: any_layout_equals_the_contiguous_one
case: batch=1 nheads=1 nheads_k=1 seqlen_q=32 seqlen_k=32 headdim=32 dtype=float32 layout=size_one
consequence: Batches of 1 that were sliced or squeezed can be run forward, and raise an AssertionError in backward.
found: 2026-11-25
status: not reported
gpu: seen on an H100
shows: AssertionError: JVPAttn expected q, k, v, o, do to have the same layout; got q.stride()=(1, 1, 32, 1), k.stride()=(2048, 2048, 32, 1), v.stride()=(2048, 2048, 32, 1), o.stride()=(1, 1, 32, 1), do.stride()=(2048, 2048, 32, 1)
"""

import torch
from jvp_flash_attention.jvp_attention import attention

q, k, v = (torch.randn(1, 1, 64, 32, device="cuda") for _ in range(3))
q = q.as_strided(q.shape, (1, 1, 32, 1)).requires_grad_()  # as contiguous as before
attention(q, k, v).backward(torch.ones_like(k))
