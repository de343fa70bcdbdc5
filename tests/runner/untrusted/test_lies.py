"""Kernels that lie about what they did are judged by what they did."""

import pytest
import torch

from flash_attest.properties.cases.case import Case
from flash_attest.properties.judging.verdict import FAIL, PASS
from flash_attest.properties.law import laws
from flash_attest.properties.trial import Trial
from flash_attest.runner.untrusted import reading
from flash_attest.runner.untrusted.caller import RemoteCaller
from flash_attest.runner.untrusted.remote import remote_of
from tests.runner.untrusted.runs import judged, untrusted
from tests.trials import broken

DEFINITION = "test_out_matches_the_definition"
CAUGHT_BY = {
    "denies_that_it_overwrites_its_input": ("test_inputs_come_back_unchanged", "changed from"),
    "denies_that_it_writes_past_the_end": ("test_inputs_come_back_unchanged", "around k"),
    "denies_that_it_reuses_its_output": ("test_outputs_stay_as_they_were_returned", "after another call"),
    "denies_that_it_writes_later": ("test_outputs_stay_as_they_were_returned", "s later"),
    "cuts_off_the_inputs": (DEFINITION, "times what rounding explains"),
    "seals_the_inputs": (DEFINITION, "times what rounding explains"),
    "is_right_in_its_first_calls": (DEFINITION, "times what rounding explains"),
    "is_right_where_it_is_tested": (DEFINITION, "times what rounding explains"),
}
CALLS = 60  # more than is_right_in_its_first_calls waits for

pytestmark = [
    pytest.mark.skipif(not reading.permitted(), reason="this system lets no process read the memory of its children"),
]


@pytest.fixture(scope="module")
def impls():
    """The implementations of lies.py, in a kernel process."""
    by_name = untrusted("lies.py")
    yield by_name
    remote_of(by_name["hides_its_operators"]).process.end()


@pytest.mark.parametrize("name", CAUGHT_BY)
def test_a_lie_changes_no_verdict(impls, name):
    law, words = CAUGHT_BY[name]
    result = judged(impls[name], law, CALLS if "first_calls" in name else 8)
    assert result.verdict == FAIL and words in result.reason
    assert "the suite raised" not in result.reason


def test_an_output_that_is_gone_ends_the_process(impls):
    case = Case(seqlen_q=2, seqlen_k=2, headdim=16, dtype=torch.float32)
    failure = broken(laws()[DEFINITION].hold, Trial(impls["frees_its_output"], case, "cpu", calls=RemoteCaller))
    assert "where it has no memory" in failure.headline or "forward ends the kernel process" in failure.headline


def test_operators_can_be_hidden_which_changes_no_verdict(impls):
    remote = remote_of(impls["hides_its_operators"])
    assert judged(impls["hides_its_operators"], DEFINITION).verdict == PASS
    remote.take_observed()  # the call that has hidden the others
    assert judged(impls["hides_its_operators"], DEFINITION).verdict == PASS
    assert remote.take_observed()["operators"] == {}


def test_every_lie_is_tried(impls):
    assert {*impls} == {*CAUGHT_BY, "frees_its_output", "hides_its_operators"}
