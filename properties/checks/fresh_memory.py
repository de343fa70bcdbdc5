"""Decides whether results depend on what torch.empty's memory happens to hold."""

from __future__ import annotations

from contextlib import suppress

import torch

from flash_attest.properties.failures import LawBroken
from flash_attest.properties.trial import Trial
from flash_attest.races.bits import bits
from flash_attest.races.finding import Finding
from flash_attest.races.poison import PATTERNS, FillFresh


def with_effect(trial: Trial, unwritten: list[Finding]) -> list[Finding]:
    """Return these reads of unwritten memory if the results of the case depend on such memory.

    The case is called with each pattern in the memory of torch.empty, and with the first pattern
    again. If that call gives other bits, the calls differ anyway and prove nothing.
    """
    if not unwritten:
        return []
    first, *others, again = [_results(trial, pattern) for pattern in (*PATTERNS, PATTERNS[0])]
    return unwritten if _equal(first, again) and not all(_equal(first, other) for other in others) else []


def _results(trial: Trial, pattern: int) -> dict[str, torch.Tensor]:
    """Return the outputs, by name; none if the call raises."""
    with suppress(LawBroken), FillFresh(pattern, trial.device, integers=True):
        return dict(trial.run(backward=trial.backward).items())
    return {}


def _equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(bits(a[name]), bits(b[name])) for name in a)
