"""Head dim 256, which the package allows, needs 257 KiB of shared memory, more than an H100 has.

number: 52
package: flash_attention_triton 0.1.1
law: none: a head dim that raises an error breaks the contract before any law
case: headdim=256 dtype=float16
consequence: Head dims above 128 pass the package's check for at most 256, but raise an error.
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: 263168 bytes of shared memory needed
"""

import torch
from flash_attention_triton import flash_attention_v2
from triton import OutOfResources

q, k, v = (torch.randn(1, 1, 256, 256, device="cuda", dtype=torch.float16) for _ in range(3))
try:
    flash_attention_v2(q, k, v)
except OutOfResources as error:
    raise SystemExit(f"{error.required} bytes of shared memory needed") from None
