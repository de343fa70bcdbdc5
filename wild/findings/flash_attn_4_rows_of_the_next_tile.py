"""The backward's first kernel writes the next tile's rows of lse_log2, as another block does.

number: 137
package: flash-attn-4 4.0.0b36
law: no_race_is_traced
case: seqlen_q=129 seqlen_k=1 headdim=64 dtype=float16
consequence: Results do not change, as both blocks write the same value. It is a race of two blocks,
    and a bound of tile_m rows would end it.
found: 2026-11-26
status: not reported
gpu: not tried
shows: AssertionError: 256 threads write the rows of a tile of 128
"""

import inspect

from flash_attn.cute.flash_bwd_preprocess import FlashAttentionBackwardPreprocess as Preprocess
from flash_attn.cute.interface import _tile_size_bwd_sm90

threads = inspect.signature(Preprocess).parameters["num_threads"].default
rows = _tile_size_bwd_sm90(64, 64, False, False).m_block_size
code = " ".join(inspect.getsource(Preprocess).split())
unbounded = "if tidx < seqlen_q_stored - m_block * self.tile_m: gLSElog2[tidx] = lse_log2" in code
assert threads <= rows or not unbounded, f"{threads} threads write the rows of a tile of {rows}"
