"""The same call, the same answer: repeated under disturbance, each output compared by itself."""

from properties.broken import LawBroken
from properties.checks import check_agree
from properties.law import law
from properties.pictures import plural, share, where
from properties.regimes import build
from races.poison import PATTERNS, poisoned
from races.repeat import compare_repeats


@law(
    share=0.1, regimes=("spread", "peaked", "mean"), scales=(), bug="races",
    seqlen_q=(24, None), seqlen_k=(24, None),  # a race needs something to race with
)  # fmt: skip
def test_repeats_agree(trial):
    """Called again with the same inputs, every output that is declared repeatable has the same bits, each time.

    Outputs that are not (atomics sum in any order) stay within the budget. Between two calls fresh memory is filled with
    huge numbers, NaN or zeros, and every fourth time another case is run. n equal repeats leave p < 3/n open, at 95 %.
    """
    backward = trial.backward
    other = build(trial.case.but(seed=trial.case.seed + 1), trial.device)
    turn = [0]

    def disturb(repeat: int) -> None:
        turn[0] = repeat
        if repeat % 4 == 3:
            trial.run(other, backward=backward)

    def call():
        with poisoned(PATTERNS[turn[0] % len(PATTERNS)], trial.device, trial.nbytes):
            return dict(trial.run(backward=backward).items())

    found, first = compare_repeats(call, trial.repeats, disturb)
    sloppy = [name for name in first if name not in trial.impl.repeatable]
    if sloppy:
        again = trial.run(backward=backward)
        budget = trial.budget(trial.want(backward=backward), backward=backward)
        for name in sloppy:
            check_agree(trial, name, getattr(again, name), first[name], getattr(budget, name), "the first call gave")
    for name, times in found.differing.items():
        if name in trial.impl.repeatable:
            elements = found.elements[name] > 0
            each = ", ".join(f"{other} in {plural(n, 'repeat')}" for other, n in found.differing.items())
            raise LawBroken(
                f"{name}: {times} of {found.n} repeats differ{'s' * (times == 1)} from the first call, "
                f"in {share(elements)}, by up to {found.largest[name]:.3g}",
                where(trial, name, elements, "differs"),
                f"outputs that differ: {each}" if len(found.differing) > 1 else "",
                suggests="a race, atomics that sum in another order, or memory that nothing wrote\n"
                "(if it is meant to be so, leave the output out of `repeatable`)",
            )
    trial.meter.repeats += found.n
    over = f"{trial.meter.repeats} repeats of {plural(trial.meter.cases + 1, 'case')}"
    trial.meter.note = f"none found in {over}, p < {found.bound:.2g} for each at 95 %"
