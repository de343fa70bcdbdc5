"""Judges the law about compute-sanitizer on a CPU."""

from dataclasses import replace

from flash_attest.impls import torch_math
from flash_attest.properties import test_races
from flash_attest.properties.cases.case import parse_case
from flash_attest.properties.judging import sanitized
from flash_attest.properties.judging.judge import judge
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.law import laws
from flash_attest.runner import alone
from tests.places import ROOT

LOGS = ROOT / "tests/races/sanitizer_logs"
LAW = replace(laws()["test_sanitizers_report_nothing"], device=None)  # as a GPU would judge it
CASE = parse_case("seqlen_q=70 seqlen_k=70 headdim=16 dtype=float32")


def have_kernels(monkeypatch, kernels_of) -> None:
    """Make kernels_of(trial) return the kernels that there are to watch."""
    monkeypatch.setattr(test_races, "kernels_of", kernels_of)
    monkeypatch.setattr(sanitized, "kernels_of", kernels_of)


def judged(impl=torch_math.IMPL, **plan):
    return judge(LAW, impl, Plan(**{"examples": 4, "try_contract": False, "alone": alone.command, **plan}))
