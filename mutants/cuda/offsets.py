"""Offsets with too few bits. They are right until a tensor has 2^31 elements:
docs/why/bugs.md#boundaries.
"""

import torch

from flash_attest.mutants.cuda.build import planted, supporting

LAW = "test_offsets_need_64_bits"
ROW = "int64_t row(int b, int i, int h) const { return b * batch + i * seqlen + h * head; }"
V_ROW = "p.v.row(b, first_key, h_k)"

MUTANTS = [
    planted(
        "both_offset_of_a_row_is_an_int",
        LAW,
        "problem.cuh",
        ((ROW, ROW.replace("return ", "return int(").replace(";", ");")),),
        "`int offset = (b * nheads + h) * seqlen * headdim`: negative beyond 2^31 elements",
        supporting(backward=False, strides=True),
        dict(nheads=2),
    ),
    planted(
        "both_offset_in_a_tile_is_unsigned",
        LAW,
        "tiles.cuh",
        (("const T* at = x + first * stride + d;", "const T* at = x + unsigned(first * stride) + d;"),),
        "32 bits without a sign: right up to 2^32 elements, then it starts from 0",
        supporting(torch.float16, backward=False, strides=True),
        dict(seqlen_q=2, seqlen_k=2),
    ),
    planted(
        "fa2_offset_of_v_is_an_int",
        "test_tensors_beyond_2_31_elements",
        "fa2_forward.cuh",
        ((V_ROW, f"int({V_ROW})"),),
        "the same in an implementation that takes contiguous tensors only: a batch of 8000 shows it, sparse memory cannot",
        supporting(torch.float16, backward=False, headdims=(32,)),
        device="cuda",
    ),
]
