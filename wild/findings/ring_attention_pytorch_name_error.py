"""flash_attn_backward without softmax_scale raises NameError: its module does not import math.

number: 84
package: ring-attention-pytorch 0.5.20
law: contract_is_kept
case: batch=1 nheads=1 nheads_k=1 seqlen_q=32 seqlen_k=32 headdim=64 dtype=float16
consequence: The default scale cannot be used. ring_flash_attn_cuda, which passes a scale, is not
    affected.
found: 2026-11-25
status: not reported
gpu: seen on an H200
shows: NameError: name 'math' is not defined
"""

import importlib.metadata

import torch

importlib.metadata.version = lambda name: "3.0.0"  # the module exits without triton-nightly
kernels = importlib.import_module("ring_attention_pytorch.triton_flash_attn")

q, k, v, out, dout, dq, dk, dv = torch.zeros(8, 1, 128, 1, 64, device="cuda", dtype=torch.float16)
kernels.flash_attn_backward(dout, q, k, v, out, torch.zeros(1, 1, 128, device="cuda"), dq, dk, dv)
