"""The chosen cases of the traced law: heads, batches and tiles, fitted to what is supported."""

from dataclasses import replace

import pytest
import torch

from flash_attest.impls import Implementation, Supports, torch_math
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.cases.traced_cases import traced_cases
from flash_attest.properties.checks.covered import covered
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import PASS
from flash_attest.properties.law import law
from flash_attest.races.tracing import MOST_CHOSEN

ALL = Supports(
    dtypes={torch.float32, torch.float16}, headdims=range(1, 129), causal="optional", bias={"vector", "matrix"},
    cross=True, gqa=True,
)  # fmt: skip
PLAIN = Supports(dtypes={torch.float16}, headdims={64, 128})


def impl(supports: Supports, **fields) -> Implementation:
    return Implementation(name="any", forward=lambda *x, **options: None, supports=supports, **fields)


def lines(supports: Supports, **fields) -> list[str]:
    return [str(case) for case in traced_cases(impl(supports, **fields))]


def test_each_case_has_several_heads_and_tiles():
    assert lines(ALL, tile=(64, 32)) == [
        "seqlen_q=65 seqlen_k=66 headdim=16 dtype=float32 batch=2 nheads=2 seed=1",
        "seqlen_q=65 seqlen_k=66 headdim=20 dtype=float16 nheads=2 nheads_k=1 causal=True bias=matrix bias_nheads=2 seed=2",
        "seqlen_q=1 seqlen_k=130 headdim=36 dtype=float32 nheads=2 bias=vector seed=3",
        "seqlen_q=17 seqlen_k=17 headdim=16 dtype=float16 batch=2 nheads=2 seed=4",
    ]


def test_without_a_tile_the_lengths_are_those_of_usual_tiles():
    assert [(case.seqlen_q, case.seqlen_k) for case in traced_cases(impl(ALL))[:3]] == [(65, 130), (129, 130), (1, 258)]


def test_lengths_are_equal_without_cross_attention():
    assert lines(PLAIN, tile=(64, 32)) == [
        "seqlen_q=66 seqlen_k=66 headdim=64 dtype=float16 batch=2 nheads=2 seed=1",
        "seqlen_q=66 seqlen_k=66 headdim=64 dtype=float16 nheads=2 seed=2",
        "seqlen_q=17 seqlen_k=17 headdim=64 dtype=float16 batch=2 nheads=2 seed=4",
    ]


@pytest.mark.parametrize("name, accepts, lengths", [
    ("multiples of 128", lambda c: "no" if (c.seqlen_q | c.seqlen_k) % 128 else None, [(128, 256), (256, 256), (128, 384)]),
    ("a single query", lambda c: "no" if c.seqlen_q > 1 else None, [(1, 130), (1, 130), (1, 258)]),
    ("one head", lambda c: "no" if c.nheads > 1 or c.batch > 1 else None, [(65, 130), (129, 130), (1, 258)]),
])  # fmt: skip
def test_lengths_are_those_that_accepts_takes(name, accepts, lengths):
    cases = traced_cases(impl(replace(ALL, accepts=accepts)))
    assert [(case.seqlen_q, case.seqlen_k) for case in cases[:3]] == lengths


@pytest.mark.parametrize("supports", [ALL, PLAIN, replace(PLAIN, headdims={1024}, cross=True)])
@pytest.mark.parametrize("tile", [None, (128, 128), (256, 256), (1000, 1000)])
def test_a_case_is_supported_and_small(supports, tile):
    cases = traced_cases(one := impl(supports, tile=tile))
    assert len(cases) >= 2
    assert all(unsupported(one, case) is None and case.products <= MOST_CHOSEN for case in cases)


def test_what_is_covered_is_the_largest_of_each():
    cases = traced_cases(one := impl(ALL, tile=(64, 32)))
    assert covered(cases, one) == "2 heads, batch 2, GQA, 2 x 3 and 1 x 5 tiles, causal, bias, forward only"
    small = [case.but(batch=1, nheads=1, nheads_k=1, seqlen_q=1, seqlen_k=1) for case in cases[:1]]
    assert covered(small, one) == "one head, one tile, forward only"
    assert covered(small, impl(ALL, backward="autograd")) == "one head, up to 1 query and 1 key, backward"


def test_chosen_cases_come_first_and_drawn_ones_fill_up():
    held = []

    @law(bug="masks", chosen=traced_cases)
    def test_counted(trial):
        """A law that notes its cases."""
        held.append(trial.case)

    one = replace(torch_math.IMPL, share=0.01)
    for examples, number in ((2, 4), (500, 5)):
        held.clear()
        result = judge(test_counted.law, one, Plan(examples=examples, try_contract=False))
        assert result.verdict == PASS and result.cases == number == len(held), result.reason
        assert held[:4] == traced_cases(one)
