"""Wrong kernels that use a trick do not pass with --untrusted.

For tricks that work without --untrusted, a test shows that too.
"""

import pytest
import torch

from flash_attest.properties.cases.case import Case
from flash_attest.properties.judging.verdict import FAIL, PASS
from flash_attest.properties.law import laws
from flash_attest.properties.trial import Trial
from flash_attest.runner.untrusted.caller import RemoteCaller
from flash_attest.runner.untrusted.remote import remote_of
from tests.runner.untrusted import tricks
from tests.runner.untrusted.runs import judged, trusted_verdict, untrusted
from tests.trials import broken

DEFINITION = "test_out_matches_the_definition"
# These tricks pass if kernels run in the judging process: only --untrusted catches them.
NEEDS_UNTRUSTED = (
    "reads_the_expected_value_in_frames",
    "finds_the_oracle_through_gc",
    "imports_the_oracle",
)
# A law catches these tricks in either process, or the suite names what they replace.
CAUGHT_BY = {
    "writes_to_the_oracle": DEFINITION,
    "patches_comparisons": DEFINITION,
    "patches_arithmetic": DEFINITION,
    "returns_a_lazy_subclass": DEFINITION,
    "returns_its_input": DEFINITION,
    "keeps_outputs_by_shape": "test_answers_follow_the_values",
    "keeps_outputs_by_pointer": "test_answers_follow_the_values",
    "reuses_its_output": "test_outputs_stay_as_they_were_returned",
    "fills_the_output_later": DEFINITION,
    "is_right_where_it_is_small": DEFINITION,
    "prints_a_fake_report": DEFINITION,
    "patches_time": DEFINITION,
    "patches_builtins": DEFINITION,
    "leaves_a_mode_behind": DEFINITION,
    "grows_the_memory": DEFINITION,
}
# These tricks end or spoil their process. They are reported, and the next call gets a new process.
ENDS = {
    "ends_with_status_0": "forward ends the kernel process: exit status 0",
    "links_its_output_to_another_file": "forward ends the kernel process: exit status 0",
    "writes_to_every_pipe": "should be a message",
    "answers_with_a_pickle": "it answers with a header that is no JSON (JSONDecodeError), should be a message",
    "promises_a_huge_answer": "it answers with a header of 1152921504606846976 bytes, should be a message",
}
COVERED_BY_THE_WIRE = ("answers_with_a_pickle", "promises_a_huge_answer")  # test_wire.py sends the same
SANDBOXED = ("writes_the_report", "reads_the_memory_of_the_judge", "kills_the_judge")


@pytest.fixture(scope="module")
def impls():
    """The implementations of the tricks, in a kernel process."""
    tricks_by_name = untrusted("tricks.py")
    yield tricks_by_name
    remote_of(tricks_by_name["calls_pytorch"]).process.end()


def test_every_trick_is_tried():
    names = {*NEEDS_UNTRUSTED, *CAUGHT_BY, *ENDS, *SANDBOXED, "calls_pytorch"}
    assert names == {trick.__name__ for trick in tricks.TRICKS}


@pytest.mark.parametrize("name", NEEDS_UNTRUSTED)
def test_what_passes_in_the_process_that_judges_is_caught_outside_of_it(impls, name):
    assert trusted_verdict(name, DEFINITION) == PASS
    result = judged(impls[name], DEFINITION)
    assert result.verdict == FAIL and "times what rounding explains" in result.reason


@pytest.mark.parametrize("name", CAUGHT_BY)
def test_what_laws_catch_is_caught_in_a_kernel_process_too(impls, name):
    assert judged(impls[name], CAUGHT_BY[name]).verdict == FAIL


@pytest.mark.parametrize("name", SANDBOXED)
def test_the_kernel_process_reaches_no_file_and_no_process_outside(impls, name):
    assert judged(impls[name], DEFINITION).verdict == FAIL
    assert not tricks.MARK.exists()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] * (name in COVERED_BY_THE_WIRE)) for name in ENDS]
)
def test_a_kernel_process_that_ends_is_named_and_replaced(impls, name):
    case = Case(seqlen_q=2, seqlen_k=2, headdim=16, dtype=torch.float32)
    law = laws()[DEFINITION]
    assert ENDS[name] in broken(law.hold, Trial(impls[name], case, "cpu", calls=RemoteCaller)).headline
    law.hold(Trial(impls["calls_pytorch"], case, "cpu", calls=RemoteCaller))
    assert not tricks.MARK.exists()


def test_inputs_that_need_more_room_follow_a_kernel_that_grew_their_memory(impls):
    law = laws()[DEFINITION]
    for seqlen in (2, 1 << 20):  # the second takes 128 MiB
        case = Case(seqlen_q=1, seqlen_k=seqlen, headdim=16, dtype=torch.float32)
        error = broken(law.hold, Trial(impls["grows_the_memory"], case, "cpu", calls=RemoteCaller))
        assert error.headline.startswith("out has shape")  # there is one query


def test_pytorchs_own_attention_is_right_and_observed(impls):
    remote = remote_of(impls["calls_pytorch"])
    remote.take_observed()
    assert judged(impls["calls_pytorch"], DEFINITION).verdict == PASS
    observed = remote.take_observed()
    assert observed["operators"]["aten::scaled_dot_product_attention"] == observed["calls"] > 4
