"""Offsets with too few bits. They are right until a tensor has 2^31 elements:
docs/why/bugs.md#boundaries.
"""

from flash_attest.mutants.triton.build import planted, supporting

BATCH = "tl.cast(b, tl.int64) * batch"
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
    planted(
        name="triton_offsets_of_batches_have_32_bits",
        law="test_offsets_need_64_bits",
        source="tiles.py",
        declares=supporting(backward=False, strides=True),
        edits=((BATCH, f"tl.where(batch < 2**31, tl.cast(b * tl.cast(batch, tl.int32), tl.int64), {BATCH})"),),
        smallest=dict(nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="Triton takes a stride below 2^31 as an int32, and its product with a batch is one, too",
    ),
]
