"""Results that are kept from an earlier call, in place of those of new values."""

from __future__ import annotations

import torch

from flash_attest.impls.contract.tensors import Inputs, Outputs
from flash_attest.properties.checks.comparisons import check_budget
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.trial import Trial


def kept_values(
    trial: Trial, broken: LawBroken, first: Outputs, got: Outputs, new: Inputs, handed: Inputs, where_to: str
) -> LawBroken:
    """Return the failure for new values whose result is wrong.

    It says whether the first result was returned again, or the new values give wrong results at any
    address. If the first result is wrong, too, its failure is raised instead.
    """
    check_budget(trial, first)
    caller, backward = trial.caller, trial.backward
    as_before = [name for name, tensor in got.items() if torch.equal(tensor, getattr(first, name))]
    cached = [name for name in as_before if _is_wrong(trial, got, new, name)]  # 0 may be right in both calls
    suggests = "a result, or part of one, is cached by the address, the shape or the identity of an input"
    if cached:
        then = f"{', '.join(cached)} {'is' if len(cached) == 1 else 'are'} as before"
    elif _is_wrong(trial, caller.call(caller.place(new, 0.0, away_from=handed)[0], backward=backward), new):
        then = "other addresses give this, too"
        suggests = "the result is wrong for these values (other laws say more), or part of it is cached by the shape"
    else:
        then = "it was right before"
    headline = f"{broken.headline}; new values were written into {where_to}, and {then}"
    return LawBroken(headline, *broken.observed, suggests=suggests)


def _is_wrong(trial: Trial, got: Outputs, x: Inputs, *names: str) -> bool:
    try:
        check_budget(trial, got, x, *names)
    except LawBroken:
        return True
    return False
