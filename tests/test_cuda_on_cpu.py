"""FlashAttention 1 and 2 in CUDA C++, on the CPU, before a few laws; all of them: pytest --impl-from impls/cuda/on_cpu.py."""

import pytest
import torch

from impls.cuda.on_cpu import IMPLS
from mutants.judging import laws
from properties.judge import judge
from properties.plan import Plan
from properties.verdict import PASS

LAWS = [
    "test_out_matches_the_definition",
    "test_gradients_match_the_definition",
    "test_query_sees_exactly_its_prefix",
    "test_ragged_sizes_match_the_definition",
    "test_any_layout_equals_the_contiguous_one",
    "test_repeats_agree",
    "test_no_race_is_traced",
]


@pytest.mark.parametrize("algorithm", IMPLS, ids=lambda impl: impl.name)
@pytest.mark.parametrize("law", LAWS)
def test_law_holds(algorithm, law):
    result = judge(laws()[law], algorithm, Plan(examples=40, repeats=20, seed=1))
    assert result.verdict == PASS, result.message or result.reason


@pytest.mark.parametrize("algorithm", IMPLS, ids=lambda impl: impl.name)
def test_what_cannot_be_done_is_said_with_the_numbers(algorithm):
    q, k = torch.zeros(1, 4, 2, 2000), torch.zeros(1, 4, 2, 2000)
    with pytest.raises(ValueError, match=r"(head dim|headdim).*2000"):
        algorithm.forward(q, k, k)
