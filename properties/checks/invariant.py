"""Compares results that an implementation may promise to be equal bit for bit (`invariant`)."""

from __future__ import annotations

from flash_attest.impls.contract.record import GRADIENTS
from flash_attest.impls.contract.tensors import Outputs
from flash_attest.properties.checks.comparisons import all_same, check_all_agree, check_same
from flash_attest.properties.checks.pictures import plural
from flash_attest.properties.trial import Trial


def check_invariant(trial: Trial, promise: str, before: Outputs, others: list[tuple[str, Outputs]]) -> None:
    """Check that results are those of another call, in which something else was computed, too.

    Repeatable outputs keep their bits if `promise` is declared in `invariant`. All others agree
    within the budget. If it is not declared, the note of the verdict says in how many cases they
    kept their bits.

    before: the results of the trial's inputs. others: what a result should be, in words, with the
    results of the other call.
    """
    exact = [name for name, _ in before.items() if name in trial.impl.repeatable]
    promised, kept = promise in trial.impl.invariant, True
    for should, after in others:
        changed = dict(after.items())
        if all_same([(changed[name], getattr(before, name)) for name in exact if name in changed]):
            changed = {name: tensor for name, tensor in changed.items() if name not in exact}
        elif promised:
            for name in exact:
                if name in changed:
                    check_same(trial, name, changed.pop(name), getattr(before, name), should)
        else:
            kept = False
        if changed:
            backward = any(name in GRADIENTS for name in changed)
            check_all_agree(trial, Outputs(**changed), before, trial.expected(backward=backward), should)
    if exact and not promised:
        meter = trial.meter
        meter.kept_bits += kept
        cases = plural(meter.cases + 1, "case")
        meter.note = f'"{promise}" is not declared in invariant: {meter.kept_bits} of {cases} kept all bits'
