"""Implementations in a kernel process give the same bits and declarations as in this process."""

from dataclasses import replace

import pytest
import torch

from flash_attest.impls import python_tiled, torch_math
from flash_attest.impls.contract.call import run
from flash_attest.impls.contract.record import ContractError
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.features import keywords_of
from flash_attest.properties.cases.inputs import build
from flash_attest.properties.cases.layouts import lay_out
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.judging.conformance import tried
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.law import laws
from flash_attest.properties.trial import Trial
from flash_attest.runner.untrusted.caller import RemoteCaller
from flash_attest.runner.untrusted.entries import from_file
from flash_attest.runner.untrusted.records import declared, record_of
from flash_attest.runner.untrusted.remote import remote_of
from tests.places import PLUGINS
from tests.runner.untrusted.runs import HERE
from tests.trials import broken

CASE = Case(
    batch=2, seqlen_q=5, seqlen_k=7, nheads=4, nheads_k=2, headdim=8, bias="matrix", causal=True, window=(3, None),
    softcap=2.0, sinks="count", dlse=True,
)  # fmt: skip
FORGETFUL = ("traced", "known_failures")  # fields that --untrusted changes


OURS = {module.IMPL.name: module.IMPL for module in (torch_math, python_tiled)}


MISTAKES = HERE / "mistakes.py"


@pytest.fixture(scope="module")
def mistakes():
    """Wrong kernels whose mistakes are found by laws about memory, and two of our own, in a kernel
    process that all share.
    """
    impls = {entry.name: entry.impl for entry in from_file(str(MISTAKES), 60)}
    yield impls
    remote_of(impls["writes_its_input"]).process.end()


@pytest.fixture(params=OURS)
def both(request, mistakes):
    """One of our implementations: in this process, and in a kernel process."""
    return OURS[request.param], mistakes[request.param]


def test_a_declaration_survives(both):
    here, there = (record_of(impl) for impl in both)
    assert {k: v for k, v in here.items() if k not in FORGETFUL} == {
        k: v for k, v in there.items() if k not in FORGETFUL
    }


def test_forward_and_backward_give_the_same_bits(both):
    here, there = both
    x = build(CASE, "cpu")
    for layout in ("contiguous", "transposed"):
        stored = type(x)(**{name: lay_out(t, layout) if t.dim() == 4 else t for name, t in x.items()})
        options = keywords_of(CASE)
        for backward in (False, True):
            want, got = (dict(run(impl, stored, backward=backward, **options).items()) for impl in (here, there))
            assert want.keys() == got.keys()
            for name in want:
                assert torch.equal(want[name], got[name]), name


def test_gradients_of_some_inputs_are_asked_for(both):
    here, there = both
    if here.backward != "autograd":
        pytest.skip("its backward is a function, which gives every gradient")
    x = build(CASE, "cpu")
    for wrt in ((), ("k",), ("q", "bias")):
        want, got = (dict(run(impl, x, backward=True, wrt=wrt, causal=True).items()) for impl in (here, there))
        assert want.keys() == got.keys() and all(torch.equal(want[name], got[name]) for name in want)


def test_empty_inputs_do_not_shift_the_others(both):
    law = laws()["test_inputs_come_back_unchanged"]
    law.hold(Trial(both[1], Case(seqlen_q=0, seqlen_k=3, headdim=8, bias="matrix"), "cpu", calls=RemoteCaller))


def test_nothing_runs_out_of_the_pages_that_an_empty_input_shares(both):
    law = laws()["test_no_queries_give_no_gradient"]
    law.hold(Trial(both[1], Case(seqlen_q=0, seqlen_k=3, headdim=8), "cpu", calls=RemoteCaller))


@pytest.mark.parametrize(
    ("name", "law"),
    (
        ("writes_its_input", "test_inputs_come_back_unchanged"),
        ("writes_behind_its_input", "test_inputs_come_back_unchanged"),
        ("reads_behind_its_input", "test_memory_around_inputs_is_not_read"),
        ("leaves_memory_unwritten", "test_what_memory_held_before_does_not_matter"),
        ("goes_on_after_the_call", "test_outputs_stay_as_they_were_returned"),
    ),
)
def test_laws_about_memory_keep_their_meaning(mistakes, name, law):
    case = Case(batch=2, seqlen_q=4, seqlen_k=4, nheads=3, nheads_k=3, headdim=16)
    assert isinstance(broken(laws()[law].hold, Trial(mistakes[name], case, "cpu", calls=RemoteCaller)), LawBroken)
    laws()[law].hold(Trial(mistakes["right"], case, "cpu", calls=RemoteCaller))


def test_an_exception_has_its_name_its_text_and_its_line(mistakes):
    failure = broken(
        laws()["test_out_matches_the_definition"].hold,
        Trial(mistakes["raises"], Case(headdim=16), "cpu", calls=RemoteCaller),
    )
    assert failure.headline == "forward raises Unhappy: about this"
    assert failure.observed[0].startswith(f"at {MISTAKES}:") and "in raises: raise Unhappy" in failure.observed[0]


def test_accepts_is_asked_there(mistakes):
    accepts = mistakes["picky"].supports.accepts
    assert accepts(Case(seqlen_q=3)) == "seqlen_q must be even, is 3" and accepts(Case(seqlen_q=2)) is None


def test_results_of_another_kind_break_the_contract(mistakes):
    problems = tried(mistakes["returns_none"], Plan()).problems
    assert problems == ["forward returns NoneType: should be out, or (out, lse)"]


def test_a_list_of_known_failures_is_refused():
    record = record_of(replace(torch_math.IMPL, known_failures={"test_out_matches_the_definition": "why, #1"}))
    with pytest.raises(ContractError, match="known_failures should be empty with --untrusted"):
        declared(record, print, print, print)


@pytest.mark.parametrize(
    ("file", "words"),
    (
        ("broken_import.py", "importing it raises"),
        pytest.param("nothing_in_it.py", "should be an Implementation", marks=pytest.mark.thorough),
    ),
)
def test_a_file_that_gives_nothing_says_why(file, words):
    (entry,) = from_file(str(PLUGINS / file), 60)
    assert words in entry.impl.problem


def test_what_an_import_changes_is_named_and_settings_hold(tmp_path):
    file = tmp_path / "careless.py"
    file.write_text(
        "import os, torch\ntorch.set_default_dtype(torch.float64)\ntorch.manual_seed(0)\nos.environ['OF_THE_FILE'] = '1'\n"
        "from flash_attest import Implementation, Supports\n"
        "def forward(q, k, v):\n"
        "    assert os.environ['OF_THE_FILE'] == '1' and torch.get_default_dtype() is torch.float32\n"
        "    return q\n"
        "IMPL = Implementation(name='careless', forward=forward, supports=Supports({torch.float32}, {8}))\n"
    )
    (entry,) = from_file(str(file), 60)
    (broken,), (remark,) = entry.broken, entry.remarks
    assert "sets torch's default dtype to torch.float64" in broken and "seeds torch's random numbers" in remark
    q = torch.ones(1, 1, 1, 8)
    assert torch.equal(entry.impl.forward(q, q, q), q)
    remote_of(entry.impl).process.end()
