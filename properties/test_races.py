"""The same call gives the same result: calls repeated with disturbed memory, and kernels traced for races."""

from contextlib import nullcontext

from properties.cases.case import Case
from properties.cases.inputs import build
from properties.checks.comparisons import check_agree
from properties.checks.pictures import plural, share, where
from properties.failures import LawBroken
from properties.law import law
from races.poison import PATTERNS, poisoned
from races.repeat import compare_repeats, in_order, order_of
from races.tracing import MOST_PRODUCTS, tracing


def _traceable(case: Case) -> Case:
    """The case with fewer heads, then with shorter sequences, if tracing it would take too long."""
    if case.products > MOST_PRODUCTS:
        case = case.but(batch=1, nheads=case.nheads // case.nheads_k, nheads_k=1, bias_batch=1, bias_nheads=1)
    if case.products > MOST_PRODUCTS:
        case = case.but(seqlen_q=min(case.seqlen_q, 70), seqlen_k=min(case.seqlen_k, 70))
    return case


@law(
    share=0.1, regime=("spread", "peaked", "mean"), softmax_scale=False, bug="races",
    seqlen_q=(24, None), seqlen_k=(24, None),  # shorter cases have too little parallel work to show a race
)  # fmt: skip
def test_repeats_agree(trial):
    """Called again with the same inputs, every output that is declared repeatable has the same bits.

    Other outputs (atomics sum in any order) stay within the budget. Between two calls fresh memory is filled with huge
    numbers, NaN or zeros, and before every fourth call another case runs. Kernels that run in the emulator run in other
    orders of threads and blocks, too. After n equal repeats, p < 3/n at 95 %.
    """
    backward, emulated = trial.backward, trial.impl.traced and trial.device == "cpu"
    other = build(trial.case.but(seed=trial.case.seed + 1), trial.device)
    turn = [0]

    def disturb(repeat: int) -> None:
        turn[0] = repeat
        if repeat % 4 == 3:
            trial.run(other, backward=backward)

    def call():
        order = order_of(turn[0], trial.case.seed) if emulated else nullcontext()
        with poisoned(PATTERNS[turn[0] % len(PATTERNS)], trial.device, trial.nbytes), order:
            return dict(trial.run(backward=backward).items())

    found, first = compare_repeats(call, trial.repeats, disturb)
    inexact = [name for name in first if name not in trial.impl.repeatable]
    if inexact:
        again = trial.run(backward=backward)
        budget = trial.budget(trial.want(backward=backward), backward=backward)
        for name in inexact:
            check_agree(trial, name, getattr(again, name), first[name], getattr(budget, name), "the first call gave")
    for name, times in found.differing.items():
        if name in trial.impl.repeatable:
            elements = found.elements[name] > 0
            by_order = emulated and not any(map(in_order, found.which[name]))
            each = ", ".join(f"{other} in {plural(n, 'repeat')}" for other, n in found.differing.items())
            raise LawBroken(
                f"{name}: {times} of {found.n} repeats differ{'s' * (times == 1)} from the first call, "
                f"in {share(elements)}, by up to {found.largest[name]:.3g}",
                where(trial, name, elements, "differs"),
                f"outputs that differ: {each}" if len(found.differing) > 1 else "",
                "only where threads and blocks run in another order: in the same order the repeats agree" * by_order,
                suggests="a race, atomics that sum in another order, or memory that was never written\n"
                "(if this is intended, leave the output out of `repeatable`)",
            )
    trial.meter.repeats += found.n
    over = f"{trial.meter.repeats} repeats of {plural(trial.meter.cases + 1, 'case')}"
    trial.meter.note = f"none found in {over}, p < {found.bound:.2g} for each at 95 %"


@law(
    needs=("same process", "traced"), device="cpu", share=0.5, regime=("spread",), softmax_scale=False, bug="races",
    where=lambda case: case.products <= MOST_PRODUCTS, toward=_traceable,
)  # fmt: skip
def test_no_race_is_traced(trial):
    """No two threads of a launch access the same byte, one of them writing, without a barrier between them: races/rule.py.

    The kernels run on the CPU and every access is checked; each case has its own order of threads and blocks. Also found:
    accesses outside of every tensor, shared memory read before its block wrote it, barriers that not all threads reach,
    deadlocks, misaligned vectors, failed launches that the host code does not check.
    """
    with tracing(seed=trial.case.seed) as found:
        try:
            trial.run(backward=trial.backward)
        except LawBroken:
            if not found.findings:  # a finding explains more than the error that follows from it
                raise
    if not found.launches and not found.findings and trial.case.products:
        raise LawBroken(
            "traced=True, but no traced kernel was launched",
            "run the kernels in the emulator when the tensors are on the CPU, or declare traced=False",
        )
    if found.findings:
        headlines = [finding.headline for finding in found.findings]
        raise LawBroken(headlines[0], *(f"{finding}\n" for finding in found.findings), findings=headlines)
    trial.meter.launches += found.launches
    trial.meter.note = f"none for {plural(trial.meter.cases + 1, 'case')} traced, {trial.meter.launches} launches"
