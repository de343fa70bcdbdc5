"""An implementation that raises or breaks its contract fails the law, with its message."""

import runpy

import pytest
import torch

from flash_attest.impls import torch_math
from flash_attest.properties.judging import conformance
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.trial import Trial
from tests.trials import broken, implementation, trial


def raising(error: Exception):
    def forward(q, k, v):
        raise error

    return forward


def test_an_exception_fails_the_law_with_its_message():
    t = Trial(implementation(raising(RuntimeError("no kernel image\nfor this device"))), trial().case, "cpu")
    assert broken(t.run).headline == "forward raises RuntimeError: no kernel image"


def test_an_exception_without_message_has_no_colon():
    t = Trial(implementation(raising(AssertionError())), trial().case, "cpu")
    assert broken(t.run).headline == "forward raises AssertionError"


def test_an_output_in_memory_that_cannot_be_read_fails_the_law(monkeypatch):
    """A call may return a freed allocation of a GPU, which the suite copies after the call."""

    def clone(tensor):
        raise RuntimeError("CUDA error: invalid argument\nadvice")

    t = Trial(torch_math.IMPL, trial().case, "cpu")
    assert t.x is not None
    monkeypatch.setattr(torch.Tensor, "clone", clone)
    assert broken(t.run).headline == "out cannot be read: CUDA error: invalid argument"


def test_an_assertion_without_text_shows_its_line(tmp_path):
    """The assertion is in another file, because pytest adds a text to assertions in tests."""
    path = tmp_path / "asserts.py"
    path.write_text("def forward(q, k, v):\n    assert q.shape[1] % 64 == 0\n    return q\n")
    forward = runpy.run_path(str(path))["forward"]
    t = Trial(implementation(forward), trial().case, "cpu")
    assert broken(t.run).headline == "forward raises AssertionError: assert q.shape[1] % 64 == 0"


@pytest.mark.parametrize("backward, phase", [(False, "forward"), (True, "backward")])
def test_an_error_after_the_call_belongs_to_its_last_phase(backward, phase):
    """On a GPU an error shows when the device is synchronised, after the call has returned."""

    def fail(outputs):
        raise RuntimeError("CUDA error: misaligned address")

    t = Trial(implementation(torch_math.forward, lse="natural", backward="autograd"), trial().case, "cpu")
    failure = broken(lambda: t.caller.call(t.caller.stored(t.x), backward=backward, then=fail))
    assert failure.headline == f"{phase} raises RuntimeError: CUDA error: misaligned address"


def test_a_broken_contract_fails_the_law_with_every_problem():
    t = Trial(implementation(lambda q, k, v: q[:1].half()), trial().case, "cpu")
    failure = broken(t.run)
    assert "shape" in failure.headline and "dtype" in failure.observed[0]


def test_contract_checks_are_not_cached_by_id():
    """A new implementation may get the id() of one that was garbage-collected."""
    answers, plan = [], Plan()
    for forward in [torch_math.forward, lambda q, k, v: (q, q)] * 10:
        answers.append(bool(conformance.tried(implementation(forward, lse="natural"), plan).problems))
    assert answers == [False, True] * 10


def test_outputs_are_copies():
    """A law that compares two calls would otherwise compare the second one with itself."""
    buffer = torch.empty(1)

    def forward(q, k, v):
        return buffer.resize_(q.shape).copy_(k[:, :1])

    t = Trial(implementation(forward), trial().case, "cpu")
    first = t.run().out
    second = t.run(t.x.with_(k=t.x.k + 1)).out
    assert torch.equal(second, first + 1)
