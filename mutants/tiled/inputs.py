"""Bugs that only certain addresses, strides, sizes of rows or boolean masks show:
docs/why/bugs.md#calling, #masks, #backward, #softmax-and-lse.
"""

from dataclasses import replace

import torch

from flash_attest.impls.python_tiled import IMPL
from flash_attest.mutants.tiled.build import planted
from flash_attest.mutants.tiled.masks import ADDED, MAXIMUM

OUT = "    out = q.new_zeros(batch, seqlen_q, nheads, v.shape[3])\n"
DELTA = "    delta = (dout.float() * out.float())"
VECTOR = "(16 // x.element_size())"  # elements in 16 bytes
VALUES = "as_operand(p, q) @ vj"
SCALED = "    dq = (dq * scale).to(q.dtype)\n"
# Keeps the maximum in use while the new one is no more than 8 above the last.
CREEPING = (
    ("        acc = qi.new_zeros(batch", "        last = m\n        acc = qi.new_zeros(batch"),
    (
        MAXIMUM,
        "            top = torch.maximum(last, s.amax(-1, keepdim=True))\n"
        "            m_new, last = torch.where((top - last <= 8) & (m > -INF), m, top), top",
    ),
)
BOOLEAN = dict(supports=replace(IMPL.supports, bias={"boolean_vector", "boolean_matrix"}, bias_grad=False))


def loads_of_16_bytes(wrong: str) -> str:
    """Return the code of a load of rows in vectors, whose addresses are rounded down."""
    return f"    x = v\n    if headdim % {VECTOR} == 0:\n{wrong}    v = x\n"


MUTANTS = [
    planted(
        name="address_is_rounded_down_to_16_bytes",
        law="test_any_layout_equals_the_contiguous_one",
        edits=(
            (
                OUT,
                loads_of_16_bytes(
                    "        before = x.data_ptr() % 16 // x.element_size()\n"
                    "        x = x.as_strided(x.shape, x.stride(), x.storage_offset() - before)\n"
                )
                + OUT,
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=2, headdim=8, layout="offset"),
        story="headdim and strides are checked before a 16-byte load, the address is not",
    ),
    planted(
        name="address_of_the_first_row_stands_for_all",
        law="test_any_layout_equals_the_contiguous_one",
        edits=(
            (
                OUT,
                loads_of_16_bytes(
                    "        if x.data_ptr() % 16 == 0:\n"
                    f"            rows = (n // {VECTOR} * {VECTOR} for n in x.stride()[:3])\n"
                    "            x = x.as_strided(x.shape, (*rows, x.stride(3)))\n"
                )
                + OUT,
            ),
        ),
        smallest=dict(batch=1, nheads=2, seqlen_q=1, seqlen_k=2, headdim=8, layout="odd_rows"),
        story="headdim and address are checked before a 16-byte load, the distance of rows is not",
    ),
    planted(
        name="values_are_read_with_the_batch_stride_of_keys",
        law="test_any_layout_equals_the_contiguous_one",
        edits=((OUT, "    v = v.as_strided(v.shape, (k.stride(0), *v.stride()[1:]))\n" + OUT),),
        smallest=dict(batch=2, nheads=2, seqlen_q=1, seqlen_k=2, headdim=1, layout="mixed"),
        story="k and v come from one cache in every test, so k's batch stride serves both",
    ),
    planted(
        name="dout_is_read_with_the_batch_stride_of_q",
        law="test_any_layout_equals_the_contiguous_one",
        edits=((DELTA, "    dout = dout.as_strided(dout.shape, (q.stride(0), *dout.stride()[1:]))\n" + DELTA),),
        smallest=dict(batch=2, nheads=2, seqlen_q=2, seqlen_k=2, headdim=1, layout="mixed"),
        story="dout has the strides of q where both are new tensors, and where both are transposed",
    ),
    planted(
        name="rows_lie_as_far_apart_as_the_heads_of_one",
        law="test_any_layout_equals_the_contiguous_one",
        edits=(
            (
                OUT,
                "    if k.is_contiguous():\n"
                "        k = k.as_strided(k.shape, (k.stride(0), k.shape[2] * k.stride(2), *k.stride()[2:]))\n" + OUT,
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=2, headdim=1, layout="size_one"),
        story="a contiguous tensor's row stride is nheads times its head stride, but one head may have any stride",
    ),
    planted(
        name="contiguous_tensors_must_have_equal_strides",
        law="test_any_layout_equals_the_contiguous_one",
        edits=(
            (
                DELTA,
                "    if len({x.stride() for x in (q, k, v, dout) if x.is_contiguous() and x.shape == q.shape}) > 1:\n"
                '        raise ValueError("the strides of q, k, v and dout differ")\n' + DELTA,
            ),
        ),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1, layout="size_one"),
        story="one stride serves all tensors if they are contiguous, and a batch of one may have any: an error in backward",
    ),
    planted(
        name="maximum_is_that_of_all_rows_of_a_tile",
        law="test_huge_scores_match_the_definition",
        edits=(
            (
                "torch.maximum(m, s.amax(-1, keepdim=True))",
                "torch.maximum(m, s[:, :, : seqlen_q - i0].amax((-2, -1), keepdim=True))",
            ),
        ),
        smallest=dict(batch=3, nheads=1, seqlen_q=2, seqlen_k=2, headdim=1),
        story="one maximum for each tile saves a reduction: rows far below the largest underflow",
    ),
    planted(
        name="maximum_creeps_away_from_the_one_in_use",
        law="test_huge_scores_match_the_definition",
        edits=CREEPING,
        smallest=dict(batch=1, nheads=1, headdim=8),
        story="a rescale is skipped for a small rise, compared with the last maximum and not with the one in use",
    ),
    planted(
        name="dq_is_stored_in_half_before_it_is_scaled",
        law="test_gradients_match_the_definition",
        edits=((SCALED, "    dq = dq.to(q.dtype) * scale\n"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, dtype=torch.float16, regime="one_sign", headdim=256),
        story="dS k exceeds 65504 where scale dS k does not, so dq is infinite",
    ),
    planted(
        name="values_of_a_tile_are_summed_in_half",
        law="test_out_matches_the_definition",
        edits=((VALUES, f"({VALUES}).to(q.dtype).float()"),),
        smallest=dict(batch=1, seqlen_q=1, seqlen_k=16, dtype=torch.float16, regime="one_sign"),
        story="P v exceeds 65504 before it is divided by l, from v of a thousand on: out is infinite",
        declares=dict(precision=replace(IMPL.precision, tile_sum=16)),
    ),
    planted(
        name="mask_hides_where_it_is_true",
        law="test_infinite_bias_hides_exactly_its_keys",
        edits=((ADDED, ADDED.replace("bias == 0", "bias != 0")),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=1, headdim=1),
        story="the mask of a library in which True means hidden",
        declares=BOOLEAN,
    ),
    planted(
        name="mask_is_added_to_the_scores",
        law="test_infinite_bias_hides_exactly_its_keys",
        edits=((ADDED, "s + bias"),),
        smallest=dict(batch=1, nheads=1, seqlen_q=1, seqlen_k=2, headdim=1),
        story="a boolean mask is converted to 0 and 1 and added: visible keys count e times as much",
        declares=BOOLEAN,
    ),
    planted(
        name="mask_of_a_batch_is_read_as_that_of_a_head",
        law="test_bias_picks_its_key",
        edits=(
            (
                OUT,
                "    if bias is not None and bias.shape[1] == 1 and batch == nheads:\n"
                "        full_bias = bias.transpose(0, 1).expand(batch, nheads, seqlen_q, seqlen_k)\n" + OUT,
            ),
        ),
        smallest=dict(batch=3, nheads=3, seqlen_q=1, seqlen_k=3, headdim=3),
        story="padding of (batch, seqlen_k) is reshaped to (1, batch, 1, seqlen_k)",
        declares=BOOLEAN,
    ),
    planted(
        name="mask_hides_by_the_least_number",
        law="test_rows_without_keys_give_zero",
        edits=((ADDED, ADDED.replace("bias == 0, -INF", "bias == 0, -3e38")),),
        smallest=dict(batch=1, nheads=1, seqlen_q=3, seqlen_k=3, headdim=1),
        story="finfo.min in place of -inf: a row that the mask hides becomes the mean of v",
        declares=BOOLEAN,
    ),
]
