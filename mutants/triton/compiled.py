"""Bugs in the rounding of products, and in programs that run at the same time. They show only in
compiled kernels.
"""

import torch

from flash_attest.impls import Supports
from flash_attest.mutants.mutant import TRACED
from flash_attest.mutants.triton.build import planted, supporting

PRODUCT = "return tl.dot(a, b, input_precision=PRECISION)"
ADD = 'tl.atomic_add(dq_ptr + offsets, dq, mask=(rows < seqlen_q) & (columns < headdim), sem="relaxed")'
ROUND = '    if PRECISION == "tf32":\n        a, b = to_tf32(a), to_tf32(b)\n'
OUT = "    out = acc / tl.where(dead, 1.0, l)[:, None]\n"

# Only the forward is built, because a backward in float32 takes longest to compile. Head dims are
# those of triton_fa2_tf32 on a CPU.
FLOAT32 = dict(backward=None, supports=Supports(dtypes={torch.float32}, headdims=range(1, 65)))

MUTANTS = [
    planted(
        name="triton_compiled_products_take_the_default_precision",
        law="test_lse_matches_the_definition",
        source="tiles.py",
        declares=FLOAT32,
        edits=((PRODUCT, "return tl.dot(a, b)"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="tl.dot multiplies float32 in tf32 by default",
    ),
    planted(
        name="triton_compiled_tf32_operands_are_cut_off",
        law="test_lse_matches_the_definition",
        source="tiles.py",
        impl="triton_fa2_tf32",
        declares=FLOAT32,
        edits=((ROUND, ""),),
        smallest=dict(batch=1, nheads=1),
        story="the matrix unit truncates the last 13 bits of float32, but rounding is declared: all errors have one sign",
    ),
    planted(
        name="triton_compiled_dq_is_loaded_added_and_stored",
        law=TRACED,
        source="backward.py",
        impl="triton_fa2_atomic",
        declares=supporting(cross=True),
        edits=(
            (
                ADD,
                "here = (rows < seqlen_q) & (columns < headdim)\n"
                "            tl.store(dq_ptr + offsets, tl.load(dq_ptr + offsets, mask=here) + dq, mask=here)",
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=17),
        story="+= instead of atomicAdd: programs of two key tiles read the same dq, and one contribution is lost",
    ),
    planted(
        name="triton_compiled_row_sums_go_through_memory",
        law=TRACED,
        source="forward.py",
        declares=supporting(backward=False),
        edits=(
            (
                OUT,
                "    tl.store(lse_ptr + i, l, mask=i < seqlen_q)\n"
                "    sums = tl.load(lse_ptr + i[:, None], mask=(i < seqlen_q)[:, None], other=1.0)\n"
                "    out = acc / tl.where(dead[:, None], 1.0, sums)\n",
            ),
        ),
        smallest=dict(batch=1, nheads=1),
        story="a row statistic is stored and loaded again in another layout, by other threads, without a barrier",
    ),
]
