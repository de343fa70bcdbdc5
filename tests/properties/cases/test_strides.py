"""Kernels that need a contiguous last dimension of their inputs, as vector loads do, but no other
contiguous dimension.
"""

from dataclasses import replace

import pytest

from flash_attest.impls import python_tiled, torch_math
from flash_attest.impls.contract.declaration import declaration_problems
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED
from flash_attest.properties.law import laws
from flash_attest.properties.trial import Trial
from tests.trials import broken

AMONG_LAYOUTS = (
    "test_any_layout_equals_the_contiguous_one",
    "test_memory_around_inputs_is_not_read",
    "test_inputs_come_back_unchanged",
)


def rows_are_vectors(q, k, v, **options):
    """Reads rows from their first element on, whatever the last stride is."""
    return torch_math.forward(*(x.as_strided(x.shape, (*x.stride()[:3], 1)) for x in (q, k, v)), **options)


def declaring(strides, forward=rows_are_vectors):
    supports = replace(
        torch_math.IMPL.supports, strides=strides, bias="none", bias_grad=False, sink_grad=False, lse_grad=False
    )
    return replace(torch_math.IMPL, name="vectors", forward=forward, backward=None, supports=supports)


def verdict(law, strides):
    return judge(laws()[law], declaring(strides), Plan(examples=20, small=True, goes_on=False, try_contract=False))


@pytest.mark.parametrize("law", AMONG_LAYOUTS)
def test_a_contiguous_last_dimension_is_enough_where_it_is_declared(law):
    result = verdict(law, "last_contiguous")
    assert result.verdict == PASS, result.message or result.reason


def test_more_than_that_fails_where_all_strides_are_declared():
    result = verdict("test_any_layout_equals_the_contiguous_one", True)
    assert result.verdict == FAIL and "layout=last_strided" in result.smallest


def test_outside_that_it_should_raise():
    case = parse_case("seqlen_q=8 seqlen_k=8 headdim=8 dtype=float32 batch=2 nheads=3")
    law = laws()["test_calls_outside_the_promise_raise_or_are_right"]
    headline = broken(law.hold, Trial(declaring("last_contiguous"), case, "cpu")).headline
    assert headline.startswith("called with layout last_strided, it raises no error, and out[")


def test_an_expanded_dout_may_be_refused_where_the_last_dimension_has_to_be_contiguous():
    def checking(dout, *operands, **options):
        if dout.shape[3] > 1 and dout.stride(3) != 1:
            raise ValueError("dout should be contiguous in its last dimension")
        return python_tiled.backward(dout, *operands, **options)

    law = laws()["test_expanded_dout_equals_its_copy"]
    impl = replace(python_tiled.IMPL, name="checking", backward=checking)
    case = parse_case("seqlen_q=2 seqlen_k=2 headdim=8 dtype=float32")
    broken(law.hold, Trial(impl, case, "cpu"))
    vectors = replace(impl, supports=replace(impl.supports, strides="last_contiguous"))
    result = judge(law, vectors, Plan(examples=4, try_contract=False))
    assert result.verdict in (PASS, REFUSED) and result.reason.startswith("errors that this law allows: ")


def test_another_word_is_a_wrong_declaration():
    impl = declaring(True)
    object.__setattr__(impl.supports, "strides", "any")
    expected = "supports.strides='any': should be one of True, False, 'last_contiguous', 'aligned'"
    assert declaration_problems(impl) == [expected]


def test_each_input_is_handed_over_with_a_contiguous_last_dimension():
    seen = set()

    def looking(q, k, v, **options):
        seen.update(x.stride(3) for x in (q, k, v) if x.shape[3] > 1)
        return torch_math.forward(q, k, v, **options)

    impl = declaring("last_contiguous", looking)
    judge(laws()["test_any_layout_equals_the_contiguous_one"], impl, Plan(examples=20, try_contract=False))
    assert seen == {1}
