"""The message about results that are cached from earlier values of the inputs."""

from dataclasses import replace

import torch

from flash_attest.impls import torch_math
from flash_attest.properties.cases.case import Case
from flash_attest.properties.law import laws
from flash_attest.properties.trial import Trial
from tests.trials import broken

LAW = laws()["test_answers_follow_the_values"]
CASE = Case(seqlen_q=1, seqlen_k=1, dtype=torch.float32)


def message_of(forward, case):
    return broken(LAW.hold, Trial(replace(torch_math.IMPL, forward=forward), case, "cpu"))


def of_first(name):
    """Return torch_math, except that one input has the values that it had in the first call with
    this memory.
    """
    old_inputs = {}

    def forward(*operands, **options):
        n = "qkv".index(name)
        old = old_inputs.setdefault(tuple(x.data_ptr() for x in operands), operands[n].detach().clone())
        old = old + (operands[n] - operands[n].detach())  # autograd sees the input
        return torch_math.forward(*operands[:n], old, *operands[n + 1 :], **options)

    return forward


def test_what_is_as_before_is_named_if_it_should_not_be():
    """dq and dk are 0 as before, which is right with one key."""
    message = message_of(of_first("v"), CASE)
    assert message.headline.startswith("out[") and message.headline.endswith("and out is as before")


def test_a_part_that_is_kept_is_found_if_no_result_is_as_before():
    message = message_of(of_first("k"), CASE)
    assert message.headline.startswith("lse[")
    assert message.headline.endswith("; new values were written into the same tensors, and it was right before")
    assert message.suggests.startswith("a result, or part of one, is cached by the address")


def test_a_mistake_with_any_values_is_not_called_kept():
    """dq and dk are 0 with any values here."""

    def forward(*operands, **options):
        out, lse = torch_math.forward(*operands, **options)
        return out, lse + 1

    message = message_of(forward, CASE)
    assert "new values" not in message.headline and not message.suggests


def test_values_that_are_wrong_wherever_they_lie_are_not_called_kept():
    """The kernel is wrong for some values, but not for the first values."""

    def forward(q, k, v, **options):
        out, lse = torch_math.forward(q, k, v, **options)
        return (out, lse) if torch.equal(v.detach(), first) else (out + 1, lse)

    trial = Trial(replace(torch_math.IMPL, forward=forward), CASE, "cpu")
    first = trial.x.v
    message = broken(LAW.hold, trial)
    assert message.headline.endswith("and other addresses give this, too")
    assert "wrong for these values" in message.suggests
