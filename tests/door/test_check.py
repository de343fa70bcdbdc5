"""flash_attest.check judges the laws from a script."""

import json

import pytest
import torch

from flash_attest import Implementation, Supports, check, checking
from flash_attest.impls import torch_math
from flash_attest.impls.contract.entry import Entry
from flash_attest.impls.contract.record import Absent
from flash_attest.properties.law import laws

LAW = "out_matches_the_definition"
SMALL = Supports(dtypes={torch.float32}, headdims={16})


def right(q, k, v):
    return torch_math.forward(q, k, v)[0]


def twice(q, k, v):
    return right(q * 2, k, v)


def mine(forward, name="mine", **more):
    return Implementation(name=name, forward=forward, supports=SMALL, outside="undefined", **more)


def test_a_right_one_is_ok_and_each_result_is_handed_on():
    seen = []
    result = check(mine(right), profile="smoke", laws=[LAW], on_result=seen.append)
    assert result.ok and str(result) == "green: 1 law holds" and seen == list(result.results)
    assert json.loads(result.to_json())[0]["verdict"] == "pass"


def test_a_wrong_one_has_a_message_and_a_line_that_judges_it_again():
    result = check(mine(twice), profile="smoke", laws=LAW)
    (failure,) = result.failures
    assert not result.ok and "times what rounding explains" in failure.message
    assert failure.replay == f"flash_attest.check(mine, laws=[{LAW!r}], case={failure.smallest!r})"
    again = check(mine(twice), laws=[LAW], case=failure.smallest)
    assert [each.verdict for each in again.results] == ["fail"]


def test_the_contract_comes_first_and_a_known_failure_is_none(monkeypatch):
    some = {name: laws()[name] for name in (f"test_{LAW}", "test_winning_key_is_copied")}  # all take seconds
    monkeypatch.setattr(checking, "laws", lambda: some)
    result = check(mine(twice, known_failures={f"test_{LAW}": "scaled twice, #1"}), profile="smoke")
    assert result.results[0].law == "test_contract_is_kept"
    assert LAW not in {each.law.removeprefix("test_") for each in result.failures}


def test_a_case_that_no_law_took_is_not_ok():
    result = check(mine(right), laws=[LAW], case="seqlen_q=4 headdim=64")
    assert not result.ok and result.undecided.startswith("no law took the case")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (dict(profile="small"), "profile='small': should be one of smoke, quick"),
        (dict(laws=["out_matches"]), "there is no law test_out_matches; did you mean test_out_matches_the_definition?"),
        (dict(laws=[]), "laws is empty"),
        (dict(device="gpu"), "device='gpu': should be auto, cpu or cuda"),
        (dict(case="seqlen=4"), "case: there is no field 'seqlen'"),
        (dict(case_timeout="x"), "case_timeout='x': should be a number of seconds"),
        (dict(seed="x"), "seed='x': should be a whole number"),
        (dict(repeats=0), "repeats=0: should be at least 1"),
        (dict(perturb="noise"), "noise: no perturbation"),
    ],
)
def test_an_argument_that_makes_no_sense_is_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        check(mine(right), **arguments)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (right, r"should be a flash_attest.Implementation: Implementation\(name=..., forward=that function\)"),
        ("mine.py", "'mine.py' should be a flash_attest.Implementation; `flash-attest check mine.py` judges a file"),
        (Absent("mine", "no Triton"), "; it cannot be loaded on this machine: no Triton"),
        ([], "no implementation is given"),
        ([mine(right), mine(twice)], "two implementations are named 'mine'"),
        (Entry(mine(right), "a.py"), "should be a flash_attest.Implementation"),
    ],
)
def test_what_is_no_implementation_is_named(given, words):
    with pytest.raises(ValueError, match=words):
        check(given)
