"""Offsets with too few bits. They are right until a tensor has 2^31 elements:
docs/why/bugs.md#boundaries.
"""

from flash_attest.mutants.triton.build import planted, supporting

OFFSETS = "offsets = tl.cast(first, tl.int64) * stride + tl.arange(0, BLOCK)[:, None].to(tl.int64) * stride + columns"

MUTANTS = [
    planted(
        name="triton_offsets_in_a_tile_have_32_bits",
        law="test_offsets_need_64_bits",
        source="tiles.py",
        declares=supporting(backward=False, strides=True),
        edits=((OFFSETS, "offsets = ((first + tl.arange(0, BLOCK)[:, None]) * stride).to(tl.int32) + columns"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=1),
        story="row numbers and strides are int32 in Triton unless they are cast",
    ),
]
