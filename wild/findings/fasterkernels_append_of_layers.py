"""append_kv of PagedKVCache lengthens the sequence once for each layer, not once for each token.

number: 25
package: fasterkernels 0.2.0
law: none: the cache is PyTorch around the kernel
case: num_layers=2, one token
consequence: With two layers or more, keys of later layers are stored at later positions, after
    rows of zeros.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: after one token, the length is 2, should be 1
"""

import torch
from fskernels.paged_attn import PagedKVCache

cache = PagedKVCache(2, 8, 1, 4, 1, 64, torch.float16, "cpu")  # 2 layers, 8 pages, 1 sequence of at most 4 pages
sequence, token = cache.allocate_sequence(), torch.ones(1, 1, 1, 64)
for layer in (0, 1):
    cache.append_kv(sequence, layer, token, token)
length = cache.get_seq_lens_tensor([sequence]).item()
assert length == 1, f"after one token, the length is {length}, should be 1"
