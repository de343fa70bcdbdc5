"""paged_flash_decode does not compile: its kernel has a break, which Triton rejects.

number: 24
package: fasterkernels 0.2.0
law: none: the kernel is left out of the adapter
case: batch=1 nheads=1 nheads_k=1 seqlen_q=1 seqlen_k=3 headdim=64 dtype=float16 page_size=16
consequence: The documented paged attention raises a compilation error (Triton 3.7.1).
found: 2026-11-26
status: not reported
gpu: seen on an H200
shows: unsupported AST node type: Break
"""

import torch
from fskernels.paged_attn import paged_flash_decode

q = torch.ones(1, 1, 64, device="cuda", dtype=torch.float16)
pages = torch.ones(4, 1, 16, 64, device="cuda", dtype=torch.float16)
block_table = torch.tensor([[2, -1]], dtype=torch.int32, device="cuda")
paged_flash_decode(q, pages, pages, block_table, torch.tensor([3], dtype=torch.int32, device="cuda"), 16)
