"""With paged keys and head dim 96, lse is wrong: copies of K and V overwrite each other and Q.

number: 139
package: flash-attn-4 4.0.0b36
law: out_matches_the_definition, lse_matches_the_definition, every_column_of_headdim_matters
case: seqlen_q=1 seqlen_k=1 headdim=96 dtype=float16 regime=shifted_down
consequence: On Hopper out and lse are wrong without an error, if a page is not as long as a tile of
    keys. paged_kv.py copies in waves of 32 or 64 rows, and does not stop at the last row of a tile
    of 80, 112 or 144. The rows behind it land in other columns and in Q, and with head dim 144
    behind the shared memory, too. In the emulator, head dims 80 and 96 are wrong without a mask,
    and 144, 160, 176, 208, 224 and 240 are; 64, 128, 192 and 256, whose waves fill the tile, are
    right.
found: 2026-11-27
status: not reported
gpu: not tried
shows: AssertionError: lse of 1440 scores of 0 is 10.20, should be 7.27
"""

import math

import torch
from flash_attn.cute import flash_attn_varlen_func

q, k = torch.zeros(1, 1, 96, device="cuda").half(), torch.ones(23, 64, 1, 96, device="cuda").half()
starts, used, table = (torch.tensor(x, dtype=torch.int32, device="cuda") for x in ([0, 1], [1440], [[*range(23)]]))
pages = dict(cu_seqlens_q=starts, seqused_k=used, page_table=table)
lse = flash_attn_varlen_func(q, k, k, **pages, return_lse=True)[1].item()
assert abs(lse - math.log(1440)) < 0.01, f"lse of 1440 scores of 0 is {lse:.2f}, should be {math.log(1440):.2f}"
