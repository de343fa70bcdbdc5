"""Repeats the calls of a trial under its perturbations, and describes the results."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import count

import torch

from flash_attest.impls.contract.tensors import Inputs
from flash_attest.properties.cases.inputs import build
from flash_attest.properties.checks.comparisons import check_agree
from flash_attest.properties.checks.pictures import plural
from flash_attest.properties.trial import Trial
from flash_attest.races.perturb import Perturbation, Setting, chosen
from flash_attest.races.repeat import Repeats, bound, compare_repeats
from flash_attest.races.tracing import MOST_PRODUCTS

NOT_TRACED = (
    "not traced: a race need not change a result, and kernels in CUDA C++, Triton or Numba can be traced (traced=True)"
)
TRACED = "whether there is a race: test_no_race_is_traced"

CAUSES = {
    "other_case": "a result or a buffer that is kept from an earlier call",
    "poison": "memory that was never written",
}  # by the only perturbation under which repeats differ
ANY_CAUSE = "a race, atomics that sum in another order, or memory that was never written"


def perturbations_of(trial: Trial) -> tuple[Perturbation, ...]:
    """Return the run's perturbations that apply to this implementation on this device."""
    emulated = trial.impl.traced and trial.device == "cpu"
    return chosen(trial.perturbations, trial.device, emulated)


def repeats_of(
    trial: Trial,
    x: Inputs,
    n: int,
    inexact: Callable[[str], bool],
    see: Callable[[dict[str, torch.Tensor]], None] = lambda results: None,
) -> Repeats:
    """Call on x (public layout) and repeat the call n times.

    inexact(name): whether an output may change its bits. see: called with the outputs of each call,
    without waiting for them.
    """
    backward, calls = trial.backward, count()

    @cache
    def other() -> Inputs:
        return trial.caller.laid_out(build(trial.case.but(seed=trial.case.seed + 1), trial.device))

    def launch(handed: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        # The first call also checks global state.
        call = trial.caller.launch if next(calls) else trial.caller.call
        results = dict(call(first.with_(**handed), backward=backward).items())
        see(results)
        return results

    first = trial.caller.laid_out(x)
    setting = Setting(
        trial.device,
        repeat=0,
        seed=trial.case.seed,
        handed=dict(first.items()),
        nbytes=x.nbytes,
        other=lambda: trial.caller.launch(other(), backward=backward),
        large=trial.case.products > MOST_PRODUCTS,
    )
    with trial.caller.waited_for(backward):
        repeats = compare_repeats(launch, n, perturbations_of(trial), setting, inexact)
    trial.meter.under.update(name for active in repeats.under for name in active)
    return repeats


def check_spread(trial: Trial, repeats: Repeats, x: Inputs) -> str:
    """Check that repeats agree within the budget in outputs that are not declared repeatable.

    Returns how far apart they were, in words.
    """
    if not repeats.between:
        return ""
    backward, apart = trial.backward, []
    expected = trial.expected(x, backward=backward)
    for name, (least, most) in repeats.between.items():
        sigma, right = (getattr(each, name) for each in (expected.sigma, expected.want))
        check_agree(trial, name, most, least, sigma, "another repeat gave", right=right)
        apart.append(f"{name} by up to {float((most - least).abs().max()) if most.numel() else 0.0:.3g}")
    return f"not declared repeatable, and within the budget of each other: {', '.join(apart)} apart"


def under(repeats: Repeats, name: str) -> str:
    """Return a table of the perturbations under which repeats of an output differed."""
    if not any(repeats.under):
        return ""
    rows = [("under", "alone", "with others")]
    for each, alone, of_alone, beside, of_beside in repeats.by_perturbation(name):
        rows.append((each, f"{alone} of {of_alone}" * (of_alone > 0), f"{beside} of {of_beside}" * (of_beside > 0)))
    lines = [f"{a:12} {b:12} {c}".rstrip() for a, b, c in rows]
    if only := repeats.only_under(name):
        lines.append(f"only under {' and '.join(only)}: the other repeats agree with the first call")
    return "\n".join(lines)


def cause(repeats: Repeats, name: str) -> str:
    """Return what may make repeats of an output differ, from the perturbations that it needs."""
    only = repeats.only_under(name)
    return CAUSES.get(only[0], ANY_CAUSE) if len(only) == 1 else ANY_CAUSE


def none_found(trial: Trial, tries: str, n: int) -> str:
    """Return a note that nothing was found, with the bound on p. n: repeats of this case."""
    meter = trial.meter
    meter.p = max(meter.p, bound(n))
    names = ", ".join(sorted(meter.under))
    worth = f"p < {meter.p:.2g} for each at 95 %{', under these perturbations' * bool(names)}"
    cases = plural(meter.cases + 1, "case")
    return f"none found in {tries} of {cases} under {names or 'no perturbation'}: {worth}; {beyond(trial)}"


def beyond(trial: Trial) -> str:
    """Return a hint: what can find more races than repeats do."""
    return TRACED if trial.impl.traced else NOT_TRACED
