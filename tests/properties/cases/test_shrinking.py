"""Drawn cases shrink to simple ones."""

import torch

from flash_attest.properties.cases.case import Case
from tests.properties.cases.drawing import (
    ALL,
    SQUARE,
    smallest,
)


def test_a_second_tile_shrinks_to_one_row_of_it():
    case = smallest(ALL, lambda c: c.seqlen_q > 64 and c.seqlen_q % 64)
    assert case == Case(seqlen_q=65, seqlen_k=65, headdim=1)


def test_a_partial_tile_of_keys_alone_shrinks_to_one_query():
    case = smallest(ALL, lambda c: c.seqlen_k > 64 and c.seqlen_k % 64, cross=True)
    assert case == Case(seqlen_q=1, seqlen_k=65, headdim=1)


def test_a_law_that_always_fails_shrinks_to_the_smallest_case():
    assert smallest(ALL, lambda c: True) == Case(headdim=1)


def test_a_head_dim_shrinks_to_the_smallest_that_fails():
    """Shrinking does not stop at a head dim that is rarely drawn (255), whichever head dim is tried
    first.
    """
    results = {smallest(ALL, lambda c: c.headdim > 64, start=n).headdim for n in range(2)}
    assert results == {65}


def test_a_failure_in_the_third_head_shrinks_to_three_heads():
    assert smallest(ALL, lambda c: c.nheads_k >= 3) == Case(nheads=3, nheads_k=3, headdim=1)


def test_a_bias_shrinks_to_a_plain_one():
    case = smallest(ALL, lambda c: c.bias == "matrix" and c.seqlen_q > 16)
    assert case == Case(seqlen_q=17, seqlen_k=17, headdim=1, bias="matrix")


def test_masked_and_causal_shrink_together():
    case = smallest(
        ALL, lambda c: c.causal and c.bias_mask == "left" and c.dtype == torch.bfloat16 and c.seqlen_k > 1, cross=False
    )
    # properties/judging/shrink.py shrinks batch and heads, because the choices for the bias depend
    # on their number.
    assert case.but(batch=1, nheads=1, nheads_k=1) == Case(
        seqlen_q=2, seqlen_k=2, headdim=1, dtype=torch.bfloat16, causal=True, bias="vector", bias_mask="left"
    )


def test_multiples_shrink_to_the_first_that_fails():
    assert smallest(SQUARE, lambda c: c.seqlen_q > 32) == Case(seqlen_q=64, seqlen_k=64, dtype=torch.float16)
