"""The same call gives the same result: repeats, equal heads, traced kernels, GPU sanitizers."""

from collections.abc import Callable

from flash_attest.properties.calling.meter import MOST_LOOKS
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.traced_cases import traced_cases
from flash_attest.properties.checks import copies
from flash_attest.properties.checks.covered import covered
from flash_attest.properties.checks.fresh_memory import with_effect
from flash_attest.properties.checks.pictures import plural, share, where
from flash_attest.properties.checks.repeated import beyond, cause, check_spread, none_found, repeats_of, under
from flash_attest.properties.checks.wrong import wrong_in
from flash_attest.properties.failures import LawBroken, findings_of
from flash_attest.properties.judging.asynchronous import ORDER, asynchronous_in
from flash_attest.properties.judging.sanitized import kernels_of, sanitized, sanitizer_program, watched_together
from flash_attest.properties.law import law
from flash_attest.races.tracing import MOST_CHOSEN, MOST_PRODUCTS, tracing

MOST_SANITIZED = 2**22  # products of q k^T; under racecheck an access takes a thousand times as long


def _small(most: int) -> Callable[[Case], Case]:
    """Return a function that shrinks cases with more than `most` products.

    It first reduces the batch and the heads, to two key heads, then the lengths, then to one key
    head.
    """

    def smaller(case: Case) -> Case:
        group = case.nheads // case.nheads_k
        one = dict(batch=1, bias_batch=1, bias_nheads=1)
        if case.products > most:
            heads = min(2, case.nheads_k)
            case = case.but(nheads=heads * group, nheads_k=heads, **one)
        if case.products > most:
            case = case.but(seqlen_q=min(case.seqlen_q, 70), seqlen_k=min(case.seqlen_k, 70))
        if case.products > most:
            case = case.but(nheads=group, nheads_k=1, **one)
        return case

    return smaller


SHOWS = dict(
    regime=("spread", "peaked", "mean"), softmax_scale=False, bug="races",
    seqlen_q=(24, None), seqlen_k=(24, None),  # shorter cases have too little parallel work to show a race
)  # fmt: skip
INTENDED = "(if this is intended, leave the output out of `repeatable`)"


@law(share=0.1, **SHOWS)
def test_repeats_agree(trial):
    """Repeated with the same inputs, a call gives the same bits in each output declared repeatable.

    Other outputs, which atomics may sum in any order, agree within the budget. Repeats run under
    perturbations, one or several at a time (docs/why/races.md). In the emulator, each repeat has
    another order of threads and blocks. After n equal repeats, the probability that a call differs
    is below 3/n (95 % confidence, under these perturbations).
    """
    repeats = repeats_of(trial, trial.x, trial.repeats, inexact=lambda name: name not in trial.impl.repeatable)
    spread = check_spread(trial, repeats, trial.x)
    for name, times in repeats.differing.items():
        if name in trial.impl.repeatable:
            elements = repeats.elements[name] > 0
            each = ", ".join(f"{other} in {plural(n, 'repeat')}" for other, n in repeats.differing.items())
            raise LawBroken(
                f"{name}: {times} of {repeats.n} repeats differ{'s' * (times == 1)} from the first call, "
                f"in {share(elements)}, by up to {repeats.largest[name]:.3g}",
                where(trial, name, elements, "differs"),
                f"outputs that differ: {each}" if len(repeats.differing) > 1 else "",
                under(repeats, name),
                suggests=f"{cause(repeats, name)}\n{INTENDED}",
                wrong=wrong_in(trial, name, elements),
            )
    trial.meter.repeats += repeats.n
    trial.meter.note = none_found(trial, f"{trial.meter.repeats} repeats", repeats.n)
    trial.meter.note += f"; {spread}" if spread else ""


@law(share=0.05, where=lambda case: case.batch * case.nheads > 1, toward=copies.of_several, **SHOWS)
def test_copies_agree(trial):
    """Within one call, heads with equal inputs have equal outputs, bit for bit.

    So one launch allows as many comparisons as it has heads: hundreds on a GPU. It is repeated
    under the perturbations of repeats_agree. Outputs that are not declared in equal_heads
    agree within the budget. If equal_heads is not declared, heads of a repeatable output may
    differ, but then the same heads differ in each call. On a CPU, this applies only to kernels that
    are traced. Other kernels need only agree within the budget, as a library's matrix product may
    depend on the address of a matrix.
    """
    exact, alike = copies.exact_outputs(trial)
    x, seen = copies.inputs_of(trial, many=trial.device == "cuda"), copies.Seen()
    launches = max(2, trial.repeats // 10)
    repeats = repeats_of(trial, x, launches - 1, inexact=lambda name: name not in exact, see=seen.add)
    copies.check_spread(trial, repeats, x)
    for name in seen.differing():
        if name in exact or (name in alike and seen.varies(name)):
            raise copies.broken(trial, seen, repeats, name)
    trial.meter.repeats += seen.comparisons
    trial.meter.launches += seen.launches
    tries = f"{plural(trial.meter.repeats, 'comparison')} of equal heads in {plural(trial.meter.launches, 'call')}"
    if exact or alike:
        trial.meter.note = none_found(trial, tries, seen.comparisons)
    else:
        trial.meter.note = f"equal heads are within the budget of each other in {tries}; {beyond(trial)}"


@law(
    needs=("same process", "traced"), device="cpu", share=0.5, regime=("spread",), softmax_scale=False, bug="races",
    collects=True, where=lambda case: case.products <= MOST_CHOSEN, toward=_small(MOST_PRODUCTS), chosen=traced_cases,
)  # fmt: skip
def test_no_race_is_traced(trial):
    """If two threads of a launch access the same byte, both read it, or a barrier lies between.

    races/rule.py has the exact rule. The kernels run on the CPU and every access is checked; each
    case has its own order of threads and blocks. Also reported: accesses outside of every tensor,
    reads of shared memory before its block has written it, reads of torch.empty's memory before
    anything has written it if results depend on it, barriers that not all threads reach, deadlocks,
    misaligned vectors, and failed launches that the host code does not check.
    """
    with tracing(seed=trial.case.seed) as trace:
        try:
            trial.run(backward=trial.backward)
        except LawBroken:
            if not trace.findings:  # findings explain more than an error that follows from them
                raise
    if not trace.launches and not trace.findings and trial.case.products:
        raise LawBroken(
            "traced=True, but no traced kernel was launched",
            "run the kernels in the emulator when the tensors are on the CPU, or declare traced=False",
        )
    if found := [*trace.findings, *with_effect(trial, trace.unwritten)]:
        raise findings_of(found)
    trial.meter.launches += trace.launches
    trial.meter.traced.append(trial.case)
    what = covered(trial.meter.traced, trial.impl)
    trial.meter.note = f"no race in {plural(len(trial.meter.traced), 'case')}: {what}; {trial.meter.launches} launches"


@law(
    needs=("same process",), device="cuda", share=0.01, regime=("spread",), softmax_scale=False, bug="races",
    collects=True, seqlen_q=(65, 140), seqlen_k=(65, 140),  # more than one tile
    where=lambda case: case.products <= MOST_SANITIZED, toward=_small(MOST_SANITIZED),
    bias=("vector", "matrix", "vector", "matrix", None),  # few cases; its gradient has its own kernels
    together=watched_together,
)  # fmt: skip
def test_sanitizers_report_nothing(trial):
    """compute-sanitizer's racecheck, memcheck and synccheck report nothing about the kernels.

    They see races in shared memory (not in global memory), accesses outside of every allocation,
    misaligned accesses, and barriers that not all threads reach. Warnings of racecheck count: a
    race is a bug even if it has not changed a result on this GPU. Two writes on one line of a
    Triton kernel do not count, because its threads store copies of a value. Each tool runs the
    cases in a separate process. The kernels of PyTorch's operators are not watched.
    """
    program = sanitizer_program()
    meter = trial.meter
    if meter.beyond:
        raise meter.beyond
    trial.needs(meter.looks < MOST_LOOKS)
    clean = trial.case in meter.clean
    if not (kernels := meter.clean[trial.case] if clean else kernels_of(trial)):
        meter.looks += 1
        none = f"launches only kernels of PyTorch's operators in {plural(meter.looks, 'case')}"
        meter.note = meter.note if meter.cases else none
        trial.needs(False)
    if not clean and (findings := sanitized([trial], program, kernels)):
        raise findings_of(findings)
    if not meter.kernels >= set(kernels):
        meter.kernels.update(kernels)
        uses = asynchronous_in(meter.kernels, trial.device).uses
        meter.unordered = f"; {ORDER} in {', '.join(uses)}" if uses else ""
    meter.note = f"nothing reported for {plural(meter.cases + 1, 'case')} of {', '.join(sorted(meter.kernels))}"
    meter.note += meter.unordered
    if meter.copied:
        meter.note += f"; copies of a value, which Triton's threads may all store, in {', '.join(sorted(meter.copied))}"
