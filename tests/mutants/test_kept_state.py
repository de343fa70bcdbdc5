"""Right twins of the bugs of mutants/tiled/kept.py, and wrong kernels that keep nothing."""

import pytest
import torch

from flash_attest.impls import Implementation, Supports, torch_math
from flash_attest.mutants import ALL
from flash_attest.mutants.judging import of_mutant, plan
from flash_attest.mutants.mutant import build
from flash_attest.mutants.tiled.kept import LAW, MUTANTS, right_twin
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.checks import among_others
from flash_attest.properties.failures import Reason, WrongAlready
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, UNKNOWN
from flash_attest.properties.law import laws
from flash_attest.properties.trial import Trial
from tests.mutants.kept import KEPT

ONE = "seqlen_q=1 seqlen_k=1 headdim=1 dtype=float32"
IN_TOX = ("strides_are_those_of_the_first_call", "long_calls_clear_the_workspace_before_and_short_ones_after")


@pytest.mark.parametrize("mutant", [
    pytest.param(m, marks=() if m.name in IN_TOX else pytest.mark.thorough, id=m.name) for m in MUTANTS
])  # fmt: skip
def test_a_whole_key_and_a_workspace_that_fits_are_right(mutant):
    case = parse_case(KEPT.get(mutant.name, ONE))
    laws()[LAW].function(Trial(build(right_twin(mutant)), case, "cpu", given=True))


@pytest.fixture
def wrong():
    """wrong(which) -> an implementation that is wrong if which(q) holds, and keeps nothing."""

    def made(which):
        def forward(q, k, v):
            return torch_math.forward(q, k, v)[0] * (2 if which(q) else 1)

        supports = Supports(dtypes={torch.float32}, headdims={1})
        return Implementation(name="wrong", forward=forward, supports=supports)

    return made


@pytest.mark.parametrize(("right", "words"), [(False, "in a new process, too"), (None, "no other process can find")])
def test_a_kernel_that_is_wrong_for_one_size_is_left_to_other_laws(wrong, monkeypatch, right, words):
    monkeypatch.setattr(among_others, "is_right_alone", lambda trial, case: right)
    trial = Trial(wrong(lambda q: q.shape[1] > 32), parse_case(ONE), "cpu", given=True)
    with pytest.raises(WrongAlready, match=f"with seqlen_q=34 seqlen_k=34, .*{words}"):
        laws()[LAW].function(trial)


def test_a_kernel_that_is_always_wrong_is_left_to_other_laws(wrong):
    result = judge(laws()[LAW], wrong(lambda q: True), Plan(examples=60, try_contract=False))
    assert (result.verdict, result.why) == (UNKNOWN, Reason.WRONG_ALREADY)


def test_one_new_process_is_enough_for_a_failure(monkeypatch):
    """Its repeats and neighbours need none, as it is known that calls matter."""
    started = []
    monkeypatch.setattr(among_others, "is_right_alone", lambda trial, case: started.append(case) or True)
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "keys_past_those_of_the_first_call_are_not_read")
    result = judge(laws()[LAW], build(mutant), Plan(examples=20, goes_on=False, try_contract=False))
    assert (result.verdict, len(started)) == (FAIL, 1)
    assert "3 of 3 repeats fail" in result.message and "other lengths" in result.message


@pytest.mark.parametrize(("name", "right"), [
    ("keys_past_those_of_the_first_call_are_not_read", True),
    pytest.param("lse_is_in_base_2", False, marks=pytest.mark.thorough),
])  # fmt: skip
def test_a_new_process_tells_whether_a_call_is_right_alone(name, right):
    mutant = next(mutant for mutant in ALL if mutant.name == name)
    trial = of_mutant(mutant, plan()).trial(build(mutant), parse_case(ONE))
    assert among_others.is_right_alone(trial, trial.case) is right
