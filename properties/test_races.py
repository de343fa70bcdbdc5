"""The same call gives the same result: calls repeated, equal heads compared, kernels traced, and watched on a GPU."""

from collections.abc import Callable

from flash_attest.properties.calling.meter import MOST_LOOKS
from flash_attest.properties.cases.case import Case
from flash_attest.properties.checks import copies
from flash_attest.properties.checks.pictures import plural, share, where
from flash_attest.properties.checks.repeated import beyond, check_spread, none_found, repeats_of, under
from flash_attest.properties.checks.wrong import wrong_in
from flash_attest.properties.failures import LawBroken, findings_of
from flash_attest.properties.judging.sanitized import kernels_of, sanitized, sanitizer_program, watched_together
from flash_attest.properties.law import law
from flash_attest.races.tracing import MOST_PRODUCTS, tracing

MOST_SANITIZED = 2**22  # under racecheck, where an access takes a thousand times as long


def _small(most: int) -> Callable[[Case], Case]:
    """-> the case with fewer heads, then with shorter sequences, if it has more than so many products."""

    def smaller(case: Case) -> Case:
        if case.products > most:
            case = case.but(batch=1, nheads=case.nheads // case.nheads_k, nheads_k=1, bias_batch=1, bias_nheads=1)
        if case.products > most:
            case = case.but(seqlen_q=min(case.seqlen_q, 70), seqlen_k=min(case.seqlen_k, 70))
        return case

    return smaller


SHOWS = dict(
    regime=("spread", "peaked", "mean"), softmax_scale=False, bug="races",
    seqlen_q=(24, None), seqlen_k=(24, None),  # shorter cases have too little parallel work to show a race
)  # fmt: skip
INTENDED = (
    "a race, atomics that sum in another order, or memory that was never written\n"
    "(if this is intended, leave the output out of `repeatable`)"
)


@law(share=0.1, **SHOWS)
def test_repeats_agree(trial):
    """Called again with the same inputs, every output that is declared repeatable has the same bits.

    Other outputs (atomics sum in any order) stay within the budget of each other. Repeats run under perturbations, one or
    several at a time: docs/why/races.md says which. Kernels that run in the emulator run in other orders of threads and
    blocks. After n equal repeats, p < 3/n at 95 %, under these perturbations.
    """
    found = repeats_of(trial, trial.x, trial.repeats, inexact=lambda name: name not in trial.impl.repeatable)
    spread = check_spread(trial, found, trial.x)
    for name, times in found.differing.items():
        if name in trial.impl.repeatable:
            elements = found.elements[name] > 0
            each = ", ".join(f"{other} in {plural(n, 'repeat')}" for other, n in found.differing.items())
            raise LawBroken(
                f"{name}: {times} of {found.n} repeats differ{'s' * (times == 1)} from the first call, "
                f"in {share(elements)}, by up to {found.largest[name]:.3g}",
                where(trial, name, elements, "differs"),
                f"outputs that differ: {each}" if len(found.differing) > 1 else "",
                under(found, name),
                suggests=INTENDED,
                wrong=wrong_in(trial, name, elements),
            )
    trial.meter.repeats += found.n
    trial.meter.note = none_found(trial, f"{trial.meter.repeats} repeats", found.n)
    trial.meter.note += f"; {spread}" if spread else ""


@law(share=0.05, where=lambda case: case.batch * case.nheads > 1, toward=copies.of_several, **SHOWS)
def test_copies_agree(trial):
    """Heads with equal inputs have equal outputs within one call, bit for bit.

    So one launch is as many comparisons as it has heads, some hundred on a GPU. It runs again under the perturbations of
    test_repeats_agree. Outputs that are not declared in equal_heads stay within the budget of each other. Where nothing is
    declared there, the heads of a repeatable output that differ are the same ones in each call. On a CPU all this is asked
    of kernels that are traced; with others, products of a library may depend on where a matrix lies: within the budget.
    """
    promised, alike = copies.exact_outputs(trial)
    x, seen = copies.inputs_of(trial, many=trial.device == "cuda"), copies.Seen()
    launches = max(2, trial.repeats // 10)
    found = repeats_of(trial, x, launches - 1, inexact=lambda name: name not in promised, see=seen.add)
    copies.check_spread(trial, found, x)
    for name in seen.differing():
        if name in promised or (name in alike and seen.varies(name)):
            raise copies.broken(trial, seen, found, name)
    trial.meter.repeats += seen.comparisons
    trial.meter.launches += seen.launches
    tries = f"{plural(trial.meter.repeats, 'comparison')} of equal heads in {plural(trial.meter.launches, 'call')}"
    if promised or alike:
        trial.meter.note = none_found(trial, tries, seen.comparisons)
    else:
        trial.meter.note = f"equal heads are within the budget of each other in {tries}; {beyond(trial)}"


@law(
    needs=("same process", "traced"), device="cpu", share=0.5, regime=("spread",), softmax_scale=False, bug="races",
    collects=True, where=lambda case: case.products <= MOST_PRODUCTS, toward=_small(MOST_PRODUCTS),
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
        raise findings_of(found.findings)
    trial.meter.launches += found.launches
    trial.meter.note = f"none for {plural(trial.meter.cases + 1, 'case')} traced, {trial.meter.launches} launches"


@law(
    needs=("same process",), device="cuda", share=0.01, regime=("spread",), softmax_scale=False, bug="races",
    collects=True, seqlen_q=(65, 140), seqlen_k=(65, 140),  # more than one tile
    where=lambda case: case.products <= MOST_SANITIZED, toward=_small(MOST_SANITIZED),
    bias=("vector", "matrix", "vector", "matrix", None),  # few cases, and its gradient has kernels of its own
    together=watched_together,
)  # fmt: skip
def test_sanitizers_report_nothing(trial):
    """compute-sanitizer reports nothing about the implementation's kernels: racecheck, memcheck and synccheck.

    They see races in shared memory (not in global memory), accesses outside of every allocation, misaligned ones, and
    barriers that not all threads reach. Warnings of racecheck count: a race that this GPU has not turned into a wrong result
    is one. Each tool runs the cases in a process of its own; kernels of PyTorch's operators are not watched.
    """
    program = sanitizer_program()
    meter = trial.meter
    trial.needs(meter.looks < MOST_LOOKS)
    clean = trial.case in meter.clean
    if not (kernels := meter.clean[trial.case] if clean else kernels_of(trial)):
        meter.looks += 1
        none = f"launches no kernels beside those of PyTorch's operators in {plural(meter.looks, 'case')}"
        meter.note = meter.note if meter.cases else none
        trial.needs(False)
    if not clean and (found := sanitized([trial], program, kernels)):
        raise findings_of(found)
    meter.kernels.update(kernels)
    meter.note = f"nothing reported for {plural(meter.cases + 1, 'case')} of {', '.join(sorted(meter.kernels))}"
