"""A law about the first call of a process is judged in a new one, also behind others."""

from dataclasses import replace

import pytest
import torch

from flash_attest.properties.checks import among_others
from flash_attest.properties.judging.verdict import FAIL, PASS
from flash_attest.properties.law import laws
from tests.plugins import good
from tests.runner.isolation.judging import LAW, isolated

FIRST = laws()["test_first_call_decides_nothing"]
AMONG_OTHERS = laws()["test_other_calls_do_not_matter"]


@pytest.fixture
def kept(monkeypatch):
    """Return an implementation for which the first call of a process decides how many queries later
    ones have, and its right twin, for which each call decides that.
    """
    monkeypatch.setattr(among_others, "is_right_alone", lambda trial, case: True)
    first: list[bool] = []

    def forward(q, k, v):
        first.append(q.shape[1] == 1)
        out = good.forward(q, k, v)
        return out * (torch.arange(q.shape[1]) == 0)[:, None, None] if first[0] else out

    def twin(q, k, v):
        first.append(q.shape[1] == 1)
        return good.forward(q, k, v)

    return [replace(good.IMPL, name=each.__name__, forward=each) for each in (forward, twin)]


def test_the_first_call_of_a_process_is_judged_behind_others(kept, tmp_path):
    """The contract check and other laws call longer sequences first, so they see nothing."""
    with isolated(tmp_path, *kept) as judging:
        verdicts = [[judging.law(law, impl).verdict for law in (LAW, AMONG_OTHERS, FIRST)] for impl in kept]
        again = judging.law(FIRST, kept[0])
    assert verdicts == [[PASS, PASS, FAIL], [PASS, PASS, PASS]]
    assert "called after others; such a call is right in a new process" in again.reason
    assert "called before: with batch=1 seqlen_q=1 seqlen_k=1 nheads=1" in again.message
