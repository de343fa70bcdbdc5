"""Attention in Triton has no backward: its output requires no gradient, and no error says so.

number: 102
package: trinix 0.1.4
law: contract_is_kept
case: batch=1 nheads=1 nheads_k=1 seqlen_q=64 seqlen_k=64 headdim=32 dtype=float16
consequence: Training with kernel_type="triton" does not train the projections of q, k and v.
found: 2026-11-25
status: not reported
gpu: seen on an H100 and an H200
shows: AssertionError: these get no gradient: ['qkv_proj.weight', 'qkv_proj.bias']
"""

import torch
from trinix import FastMultiHeadSelfAttention

module = FastMultiHeadSelfAttention(64, 2, kernel_type="triton").cuda()
module(torch.randn(1, 64, 64, device="cuda")).sum().backward()
without = [name for name, parameter in module.named_parameters() if parameter.grad is None]
assert not without, f"these get no gradient: {without}"
