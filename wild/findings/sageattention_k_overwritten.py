"""The caller's k is overwritten: its mean is subtracted in place.

number: 87
package: sageattention 1.0.6
law: none: the contract check finds it, before any law
case: batch=1 nheads=1 nheads_k=1 seqlen_q=64 seqlen_k=64 headdim=64 dtype=float16
consequence: Later uses of k, such as a key cache or a second call, get other values.
found: 2026-11-25
status: reported https://github.com/Comfy-Org/ComfyUI/pull/16035
gpu: seen on an H100 and an H200
shows: AssertionError: k has changed by 3.00
"""

import torch
from sageattention.core import sageattn

q, k, v = (torch.full((1, 1, 64, 64), 3.0, device="cuda", dtype=torch.float16) for _ in range(3))
before = k.clone()
sageattn(q, k, v)  # smooth_k=True is the default
change = (k - before).abs().max().item()
assert change == 0, f"k has changed by {change:.2f}"
