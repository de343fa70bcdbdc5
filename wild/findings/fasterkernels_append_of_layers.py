"""PagedKVCache.append_kv counts a token once for each layer.

number: 19
package: fasterkernels 0.2.0
law: none: the cache is PyTorch around the kernel
case: num_layers=2, one token
consequence: From two layers on, keys of later layers lie at later positions, between rows of zeros.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: after one token the length is 2
"""

import torch
from fskernels.paged_attn import PagedKVCache

cache = PagedKVCache(2, 8, 1, 4, 1, 64, torch.float16, "cpu")  # 2 layers, 8 pages, 1 sequence of at most 4 pages
sequence, token = cache.allocate_sequence(), torch.ones(1, 1, 1, 64)
for layer in (0, 1):
    cache.append_kv(sequence, layer, token, token)
length = cache.get_seq_lens_tensor([sequence]).item()
assert length == 1, f"after one token the length is {length}"
