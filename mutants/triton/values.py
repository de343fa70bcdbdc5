"""Bugs of values that are narrower or wider than keys, in the Triton kernels:
docs/why/bugs.md#boundaries.
"""

from flash_attest.impls import Precision
from flash_attest.mutants.mutant import TRACED
from flash_attest.mutants.triton.build import planted, supporting

PV = "product(p.to(v.dtype), v, PRECISION)"
PAIRS = [(8, 16), (16, 8)]
LOAD = "v = load_tile(v_ptr, j0, v_row, seqlen_k, headdim_v, BLOCK_N, BLOCK_DV, ALIGN, MASKED)"
STORE = "store_tile(dv_ptr, dv, j0, dv_strides.row, seqlen_k, headdim_v, BLOCK_N, BLOCK_DV, ALIGN)"
WHOLE = "self.headdim % align == self.headdim_v % align == 0"
SCALE = "scale = sizes.headdim**-0.5"

MUTANTS = [
    planted(
        name="triton_values_are_summed_in_half",
        law="test_out_matches_the_definition",
        source="forward.py",
        declares=supporting(backward=False, cross=True) | dict(precision=Precision(tile_sum=64)),
        edits=((PV, f"{PV}.to(tl.float16).to(tl.float32)"),),
        smallest=dict(batch=1, seqlen_q=1, seqlen_k=16, regime="one_sign"),
        story="the accumulator of P v is float16 for speed, and overflows before it is divided by l",
    ),
    planted(
        name="triton_columns_of_v_are_masked_by_headdim",
        law="test_out_matches_the_definition",
        source="forward.py",
        declares=supporting(backward=False, headdims_v=PAIRS),
        edits=((LOAD, LOAD.replace("headdim_v", "headdim")),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=8, headdim_v=16),
        story="the loads of k and v share one mask of columns",
    ),
    planted(
        name="triton_columns_of_dv_beyond_headdim_v_are_stored",
        law=TRACED,
        source="backward.py",
        declares=supporting(headdims_v=[(16, 8)]),
        edits=((STORE, STORE.replace("headdim_v", "headdim")),),
        smallest=dict(batch=1, nheads=1, headdim=16, headdim_v=8),
        story="dv is stored with the mask of dk, so the end of each row falls on the next one",
    ),
    planted(
        name="triton_width_of_v_is_not_checked_for_wide_loads",
        law="test_what_memory_held_before_does_not_matter",
        source="problem.py",
        declares=supporting(backward=False, headdims_v=[(8, 20)]),
        edits=((WHOLE, "self.headdim % align == 0"),),
        smallest=dict(batch=1, nheads=1, headdim=8, headdim_v=20),
        story="the last columns of v are less than one wide load, and only the head dim of k is checked",
    ),
    planted(
        name="triton_scale_is_that_of_headdim_v",
        law="test_out_matches_the_definition",
        source="problem.py",
        declares=supporting(backward=False, headdims_v=PAIRS),
        edits=((SCALE, "scale = headdim_v**-0.5"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=2, seqlen_k=2, headdim=16, headdim_v=16),
        story="the default softmax_scale is taken from the shape of v",
    ),
]
