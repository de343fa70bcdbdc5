"""Bugs of the Triton kernels that show only when compiled: the interpreter multiplies exactly and runs one program at a
time. They are judged on a GPU: pytest tests/mutants/test_mutants.py -k triton_compiled
"""

import torch

from impls import Supports
from mutants.triton.build import planted

PRODUCT = "return tl.dot(a, b, input_precision=PRECISION)"
ADD = 'tl.atomic_add(dq_ptr + offsets, dq, mask=(rows < seqlen_q) & (columns < headdim), sem="relaxed")'
ROUND = '    if PRECISION == "tf32":\n        a, b = to_tf32(a), to_tf32(b)\n'

# The forward only, because a backward in float32 takes minutes to compile.
FLOAT32 = dict(backward=None, supports=Supports(dtypes={torch.float32}, headdims=range(1, 257)))

MUTANTS = [
    planted(
        name="triton_compiled_products_take_the_default_precision",
        law="test_lse_matches_the_definition",
        source="tiles.py",
        declares=FLOAT32,
        edits=((PRODUCT, "return tl.dot(a, b)"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="tl.dot multiplies float32 in tf32 by default",
        device="cuda",
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
        device="cuda",
    ),
    planted(
        name="triton_compiled_dq_is_loaded_added_and_stored",
        law="test_gradients_match_the_definition",
        source="backward.py",
        impl="triton_fa2_atomic",
        declares=dict(supports=Supports(dtypes={torch.float16}, headdims=range(1, 257), cross=True)),
        edits=(
            (
                ADD,
                "here = (rows < seqlen_q) & (columns < headdim)\n"
                "            tl.store(dq_ptr + offsets, tl.load(dq_ptr + offsets, mask=here) + dq, mask=here)",
            ),
        ),
        smallest={},
        story="+= instead of atomicAdd: programs of two key tiles read the same dq, and one contribution is lost",
        device="cuda",
    ),
]
