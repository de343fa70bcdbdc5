"""The same call, the same answer: repeated under disturbance, each output compared by itself."""

from emulator.tracing import tracing
from properties.cases.case import Case
from properties.cases.inputs import build
from properties.checks.comparisons import check_agree
from properties.checks.pictures import plural, share, where
from properties.failures import LawBroken
from properties.law import law
from races.poison import PATTERNS, poisoned
from races.repeat import compare_repeats

TRACED = 2**20  # products q k of a case that is traced: about 0.2 s forward


def _work(case: Case) -> int:
    return case.batch * case.nheads * case.seqlen_q * case.seqlen_k * case.headdim


def _traceable(case: Case) -> Case:
    """The case with fewer heads, then with shorter sequences, if it would take too long access by access."""
    if _work(case) > TRACED:
        case = case.but(batch=1, nheads=case.nheads // case.nheads_k, nheads_k=1, bias_batch=1, bias_nheads=1)
    return case if _work(case) <= TRACED else case.but(seqlen_q=min(case.seqlen_q, 70), seqlen_k=min(case.seqlen_k, 70))


@law(
    share=0.1, regime=("spread", "peaked", "mean"), softmax_scale=False, bug="races",
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


@law(
    needs=("traced",), device="cpu", share=0.5, regime=("spread",), softmax_scale=False, bug="races",
    where=lambda case: _work(case) <= TRACED, toward=_traceable,
)  # fmt: skip
def test_no_race_is_traced(trial):
    """No two threads of a launch touch the same byte, one of them writing, without a barrier between: races/rule.py.

    The kernels run on the CPU, every access is seen and judged, in an order of threads and blocks of the case's own. Also
    found: what lies outside of every tensor, shared memory read before anything wrote it in its block, barriers that not all
    reach, threads that wait for ever, misaligned vectors, launches that fail unasked.
    """
    with tracing(seed=trial.case.seed) as found:
        try:
            trial.run(backward=trial.backward)
        except LawBroken:
            if not found.reports:  # what was found says why
                raise
    if not found.launches and not found.reports and _work(trial.case):
        raise LawBroken(
            "traced=True, but no kernel that emulator.cuda has loaded was launched",
            "load the .cu with emulator.cuda.load and call its functions, or declare traced=False",
        )
    if found.reports:
        first, *others = found.reports
        raise LawBroken(first.headline, *(f"{report}\n" for report in [first, *others]))
    trial.meter.launches += found.launches
    trial.meter.note = f"none for {plural(trial.meter.cases + 1, 'case')} traced, {trial.meter.launches} launches"
