"""Offsets in too few bits, which is right until a tensor has 2^31 elements: docs/bugs.md#boundaries."""

import torch

from mutants import triton_forward
from mutants.cuda_tiles import planted, promising
from mutants.mutant import Mutant

LAW = "test_offsets_need_64_bits"
ROW = "int64_t row(int b, int i, int h) const { return b * batch + i * seqlen + h * head; }"
IN_TRITON = "offsets = tl.cast(first, tl.int64) * stride + tl.arange(0, BLOCK)[:, None].to(tl.int64) * stride + columns"

MUTANTS = [
    planted(
        "both_offset_of_a_row_is_an_int",
        LAW,
        "problem.cuh",
        ((ROW, ROW.replace("return ", "return int(").replace(";", ");")),),
        "`int offset = (b * nheads + h) * seqlen * headdim`: negative behind 2^31 elements",
        promising(backward=False, strides=True),
        dict(nheads=2),
    ),
    planted(
        "both_offset_in_a_tile_is_unsigned",
        LAW,
        "tiles.cuh",
        (("const T* at = x + first * stride + d;", "const T* at = x + unsigned(first * stride) + d;"),),
        "32 bits without a sign: right to 2^32 elements, then it starts from 0",
        promising(torch.float16, backward=False, strides=True),
        dict(seqlen_q=2, seqlen_k=2),
    ),
    Mutant(
        name="triton_offsets_in_a_tile_have_32_bits",
        law=LAW,
        source="triton/tiles",
        impl="triton_fa2",
        declares=triton_forward.promising(backward=False, strides=True),
        edits=((IN_TRITON, "offsets = ((first + tl.arange(0, BLOCK)[:, None]) * stride).to(tl.int32) + columns"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=1),
        story="row numbers and strides are int32 in Triton unless one says otherwise",
    ),
]
