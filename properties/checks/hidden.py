"""Checks that keys which a query does not see have no influence on its results."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from flash_attest.impls.contract.tensors import Inputs, Outputs
from flash_attest.properties.checks import bits
from flash_attest.properties.checks.comparisons import all_same, check_agree, check_same, check_unchanged
from flash_attest.properties.failures import LawBroken
from flash_attest.properties.trial import Trial

# A hidden key that weighs e^-20 becomes visible: 2^40 e^-20 is 2000.
LOUD = 2.0**40
LOUD_IN_FLOAT16 = 2.0**10  # hidden values are at most 10 before
# The largest score that hidden keys are given. If it counts for the maximum of a row, all visible
# keys underflow. It is finite in every dtype.
LOUD_SCORE = 1000.0


def check_hidden(
    trial: Trial,
    changed: Inputs,
    hidden: torch.Tensor,
    should: str,
    compared: Callable[[Outputs, Outputs], Outputs] = lambda outputs, before: outputs,
) -> None:
    """Check that results do not change if only k and v of hidden keys do.

    Outputs declared repeatable keep their bits. A kernel that orders keys by their values may sum
    the others in another order, though. So where bits differ, hidden values become louder, and
    results must stay within the budget. v is multiplied by 2^40 (float16: 2^10), so that a key with
    the least weight shows, and k so that the largest hidden score is about 1000. The order of a sum
    does not show then.

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
    louder = {"k": _louder_scores(trial, changed), "v": LOUD_IN_FLOAT16 if in_float16 else LOUD}
    values = {
        name: torch.where(hidden, getattr(changed, name) * by, getattr(changed, name)) for name, by in louder.items()
    }
    # In float16, dP of these keys may overflow, and 0 inf is NaN.
    loud = after(trial.tied(changed.with_(**values)), trial.backward and not in_float16)
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


def check_unseen(trial: Trial, replaced: torch.Tensor, should: str) -> None:
    """Check that queries which see none of some keys keep their results if k and v of these change.

    out, lse and dq of these queries are compared, as in `check_hidden`. replaced: bool (sk,), or
    (b, hk, sk) if heads differ. Draws another case if each query sees one of these keys.
    """
    x, case, random = trial.x, trial.case, trial.random("other keys")
    replaced = replaced.expand(case.batch, case.nheads_k, case.seqlen_k)
    of_heads = replaced.repeat_interleave(case.nheads // case.nheads_k, 1).unsqueeze(2)  # (b, h, 1, sk)
    blind = ~(trial.seen() & of_heads).any(dim=-1)  # (b, h, sq)
    trial.needs(bool(blind.any()) and bool(replaced.any()))
    hidden, rows_of_out = replaced.transpose(1, 2).unsqueeze(3), blind.transpose(1, 2).unsqueeze(3)
    other = {name: random.uniform(getattr(x, name).shape, -10, 10).to(case.dtype) for name in ("k", "v")}
    changed = {name: torch.where(hidden, tensor, getattr(x, name)) for name, tensor in other.items()}
    rows = {"out": rows_of_out, "dq": rows_of_out, "lse": blind}

    def of_blind(outputs: Outputs, before: Outputs) -> Outputs:
        kept = {name: (tensor, getattr(before, name)) for name, tensor in outputs.items() if name in rows}
        return Outputs(**{name: torch.where(rows[name], now, was) for name, (now, was) in kept.items()})

    check_hidden(trial, trial.tied(x.with_(**changed)), hidden, should, of_blind)


def _louder_scores(trial: Trial, changed: Inputs) -> float:
    """Return a power of two by which k may be multiplied. k, up to 10, stays finite in float16."""
    k = changed.k.double().repeat_interleave(trial.case.nheads // trial.case.nheads_k, dim=2)
    largest = abs(trial.case.scale) * torch.einsum("bihd,bjhd->bhij", changed.q.double(), k).abs().max().item()
    return 2.0 ** min(12, max(0, math.floor(math.log2(LOUD_SCORE / largest)))) if largest else 1.0
