"""Checks that keys which a query does not see have no influence on its results."""

from __future__ import annotations

from collections.abc import Callable

import torch

from flash_attest.impls.contract.call import Inputs, Outputs
from flash_attest.properties.checks import bits
from flash_attest.properties.checks.comparisons import all_same, check_agree, check_same, check_unchanged
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.trial import Trial

# A hidden key that weighs e^-20 becomes visible: 2^40 e^-20 is 2000.
LOUD = 2.0**40
LOUD_IN_FLOAT16 = 2.0**10  # hidden values are at most 10 before


def check_hidden(
    trial: Trial,
    changed: Inputs,
    hidden: torch.Tensor,
    should: str,
    compared: Callable[[Outputs, Outputs], Outputs] = lambda outputs, before: outputs,
) -> None:
    """Check that results do not change if only k and v of hidden keys do.

    Outputs declared repeatable keep their bits. A kernel that orders keys by their values may sum
    the others in another order, though. So where bits differ, hidden values are multiplied by 2^40
    (float16: 2^10), and results must stay within the budget: a key with the least weight shows
    then, and the order of a sum does not.

    changed: the case's inputs with other k and v at hidden keys. hidden: bool, broadcastable to v.
    compared: takes outputs and those of the first call, and returns what must be equal.
    """
    before = trial.run(backward=trial.backward)

    def after(x: Inputs, backward: bool) -> Outputs:
        return compared(trial.run(x, backward=backward), before)

    usual = after(changed, trial.backward)
    if not bits.keeps_when_others_change(trial):  # changed rows share a quantization step with these
        check_unchanged(trial, before, usual, should, keeps_bits=False, other=changed)
        return
    exact = [name for name, _ in usual.items() if name in trial.impl.repeatable]
    if all_same([(getattr(usual, name), getattr(before, name)) for name in exact]):
        rest = {name: tensor for name, tensor in usual.items() if name not in exact}
        check_unchanged(trial, before, Outputs(**rest), should)
        return
    in_float16 = trial.case.dtype == torch.float16
    v = changed.v * (LOUD_IN_FLOAT16 if in_float16 else LOUD)
    # In float16, dP of these keys may overflow, and 0 inf is NaN.
    loud = after(changed.with_(v=torch.where(hidden, v, changed.v)), trial.backward and not in_float16)
    expected = trial.expected(backward=trial.backward)
    for results in (usual, loud):
        for name, tensor in results.items():
            sigma, right = (getattr(each, name) for each in (expected.sigma, expected.want))
            try:
                check_agree(trial, name, tensor, getattr(before, name), sigma, should, right=right)
            except LawBroken:
                if name in exact:  # the difference without the large values is the plainer one
                    check_same(trial, name, getattr(usual, name), getattr(before, name), should)
                raise
