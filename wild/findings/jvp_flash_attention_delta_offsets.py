"""The backward reads out and dout at offsets of 32 bits, so dq is wrong past 2^31 elements.

number: 132
package: jvp-flash-attention 0.14.0
law: tensors_beyond_2_31_elements
case: seqlen_q=512 seqlen_k=512 headdim=128 dtype=float16 nheads=32896
consequence: The forward has offsets of 64 bits. In the kernel that computes rowsum(dout * out),
    off_hz * HEAD_DIM * N_CTX has 32: gradients of q and k are wrong there, or the access is
    illegal.
found: 2026-11-26
status: not reported
gpu: needed for 4 GiB each; seen on an H200
shows: AssertionError: dq of the last head is off by 1.00
"""

import contextlib

import torch
from jvp_flash_attention.jvp_attention import attention

x, error = torch.randn(1, 32896, 512, 128, device="cuda").half().requires_grad_(), 1.0  # 2^31 + 2^23 elements
with contextlib.suppress(RuntimeError):  # an illegal access
    attention(x, x.detach(), x.detach()).backward(x.detach())
    last = x[:, -1:].detach().clone().requires_grad_()  # the last head alone
    attention(last, last.detach(), last.detach()).backward(last.detach())
    error = (x.grad[:, -1:] - last.grad).abs().max().item()
assert error < 0.01, f"dq of the last head is off by {error:.2f}"
