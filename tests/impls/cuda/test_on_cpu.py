"""FlashAttention 1 and 2 in CUDA C++ as operators on CPU tensors, judged by a few laws.

pytest --impl cuda_fa2 judges them by all laws, and tox's second command judges every implementation
by every law, with few cases. So here one law judges them through autograd, which that command does
not do. With --thorough there are more laws, and more cases.
"""

from dataclasses import replace

import pytest

from flash_attest.impls import Implementation, cuda
from flash_attest.properties.judging import conformance
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import PASS
from flash_attest.properties.law import laws

IMPLS = [impl for impl in cuda.IMPLS if isinstance(impl, Implementation) and "cpu" in impl.devices]
FORWARD = [
    "test_out_matches_the_definition",
    "test_query_sees_exactly_its_prefix",
    "test_ragged_sizes_match_the_definition",
    "test_any_layout_equals_the_contiguous_one",
    "test_repeats_agree",
    "test_no_race_is_traced",
]
BACKWARD = ["test_gradients_match_the_definition"]
CHOSEN = [(impl, law) for impl in IMPLS for law in [*FORWARD, *(BACKWARD if impl.backward else [])]]
THROUGH_AUTOGRAD = [replace(impl, backward="autograd") for impl in IMPLS if impl.backward]
FEW, MORE = 10, 40  # cases


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", IMPLS, ids=lambda impl: impl.name)
def test_out_matches_the_definition(algorithm):
    result = judge(laws()["test_out_matches_the_definition"], algorithm, Plan(examples=FEW, seed=1))
    assert result.verdict == PASS, result.message or result.reason


@pytest.mark.thorough
@pytest.mark.parametrize(("algorithm", "law"), CHOSEN, ids=[f"{impl.name}-{law}" for impl, law in CHOSEN])
def test_law_holds(algorithm, law):
    result = judge(laws()[law], algorithm, Plan(examples=MORE, repeats=20, seed=1))
    assert result.verdict == PASS, result.message or result.reason


@pytest.mark.parametrize("examples", [FEW, pytest.param(MORE, marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    "law",
    [pytest.param("test_any_subset_of_inputs_may_require_grad", marks=pytest.mark.thorough), *BACKWARD],
)
@pytest.mark.parametrize("algorithm", THROUGH_AUTOGRAD, ids=lambda impl: impl.name)
def test_law_holds_through_autograd(algorithm, law, examples):
    """The suite judges and times the backward operator itself; models call it through autograd."""
    result = judge(laws()[law], algorithm, Plan(examples=examples, seed=1, try_contract=False))
    assert result.verdict == PASS, result.message or result.reason


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", IMPLS, ids=lambda impl: impl.name)
def test_contract_is_kept(algorithm):
    assert conformance.problems(algorithm, "cpu") == []
