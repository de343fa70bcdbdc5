"""The last steps to the smallest failing case, after Hypothesis.

Hypothesis shrinks everything that was drawn, including the seed. Another length means other random
tensors, so a shorter case may fail only with a seed that Hypothesis never tries. Here every step is
tried with a few seeds, sizes first, until no step makes the case smaller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.bias_masks import HIDING
from flash_attest.properties.cases.case import BOOLEAN, Case, CaseError
from flash_attest.properties.cases.features import BIAS_DETAILS, FEATURES, NO_BIAS
from flash_attest.properties.cases.form_features import OF_FORM
from flash_attest.properties.cases.strategies import ALONE, TOGETHER
from flash_attest.properties.failures import AnotherCase, LawBroken, Undecided
from flash_attest.properties.judging.judgement import Judgement
from flash_attest.properties.law import Law

FEW_SPLITS = 3
SEEDS = 4  # besides the case's own
MOST_TRIALS, MOST_SECONDS = 400, 20.0  # with a slow kernel, the case stays larger


def smallest(
    judgement: Judgement,
    case: Case,
    broken: LawBroken,
    run: Callable[[Case], None],
    same: Callable[[LawBroken], bool] | None = None,
    seconds: float | None = None,
    seeds: int = SEEDS,
) -> tuple[LawBroken, Case]:
    """Return a case that fails in the same way, and that no single step can make smaller.

    run(case) raises LawBroken if the law does not hold. same(failure): whether it is of the same
    kind; by default, whether it has the same type. seconds: the limit; MOST_SECONDS by default.
    seeds: how many seeds are tried besides the case's own.
    """
    stop, trials = time.perf_counter() + (MOST_SECONDS if seconds is None else seconds), 0
    same = same or (lambda failure: type(failure) is type(broken))
    steps = steps_from(judgement, case)
    while (step := next(steps, None)) is not None:
        for seed in dict.fromkeys((case.seed, *range(seeds))):
            if trials >= MOST_TRIALS or time.perf_counter() > stop:
                return broken, case
            trials += 1
            try:
                run(step.but(seed=seed))
            except LawBroken as failure:
                if same(failure):
                    broken, case = failure, step.but(seed=seed)
                    steps = steps_from(judgement, case)
                    break
            except (AnotherCase, Undecided):
                break
    return broken, case


def steps_from(judgement: Judgement, case: Case) -> Iterator[Case]:
    """Yield cases that are one step simpler, the largest steps first.

    The law wants them and the implementation supports them.
    """
    for changes in _changes(judgement.law, judgement.impl, case):
        try:
            step = case.but(**changes)
        except CaseError:
            continue
        if step != case and judgement.takes(step):
            yield step


def _changes(law: Law, impl: Implementation, case: Case) -> Iterator[dict]:
    yield from _plainer_call(law, impl, case)
    # Then reduce sizes: lengths, batch, heads, head dim.
    lengths = ("seqlen_q", "seqlen_k")
    if case.seqlen_q == case.seqlen_k:
        yield from (dict.fromkeys(lengths, n) for n in _below(case.seqlen_q))
    else:
        yield from (dict.fromkeys(lengths, n) for n in (1, 2, 3) if n < min(case.seqlen_q, case.seqlen_k))
    # A kernel may take a size for another one that equals it.
    yield from (
        {name: n, "headdim": n} for name in lengths if getattr(case, name) == case.headdim for n in _below(case.headdim)
    )
    yield from ({name: n} for name in lengths for n in _below(getattr(case, name)))
    # With another number of splits, the parts of fewer keys end elsewhere.
    few = [n for n in law.draws.values("num_splits", impl) if 1 < n <= max(FEW_SPLITS, case.num_splits)]
    if case.num_splits > 1:
        yield from ({"seqlen_k": m, "num_splits": n} for m in _below(case.seqlen_k) for n in few)
    if case.nheads != case.nheads_k:
        yield {"nheads": case.nheads_k}
        yield {"nheads": case.nheads // case.nheads_k, "nheads_k": 1}
        yield {"nheads_k": case.nheads}  # plainer, though not smaller
    yield from ({"batch": n} for n in _below(case.batch))
    if case.nheads == case.nheads_k:
        yield from ({"nheads": n, "nheads_k": n} for n in _below(case.nheads))
    if case.seqlen_k == case.nheads_k:  # a kernel may take one for the other
        group = case.nheads // case.nheads_k
        yield from ({"nheads": group * n, "nheads_k": n, "seqlen_k": n} for n in (2, 3) if n < case.nheads_k)
    yield from _whole_row_hidden(impl, case)
    lower = [d for d in impl.supports.headdim_list if d < case.headdim]
    yield from ({"headdim": d} for d in dict.fromkeys([*lower[:2], *lower[len(lower) // 2 :][:1], *lower[-1:]]))
    # Then simplify features: those that most cases lack, the bias, and the others.
    yield from ({name: None if name == "headdim_v" else FEATURES[name].neutral} for name in ALONE)
    yield from _smaller_features(law, impl, case)
    yield NO_BIAS
    yield from ({name: NO_BIAS[name]} for name in BIAS_DETAILS)
    for name in reversed(TOGETHER):
        if simplest := law.draws.values(name, impl)[:1]:
            yield {name: simplest[0]}


def _plainer_call(law: Law, impl: Implementation, case: Case) -> Iterator[dict]:
    """Yield simpler values of what a form varies around the case: neighbours, slack, pages.

    These come first: without neighbours the case is the whole call.
    """
    simpler = {}
    for name in OF_FORM:
        values = law.draws.values(name, impl)
        if (value := getattr(case, name)) in values:
            simpler[name] = values[: values.index(value)]
    yield {name: values[0] for name, values in simpler.items() if values}
    yield from ({name: value} for name, values in simpler.items() for value in values)


def _smaller_features(law: Law, impl: Implementation, case: Case) -> Iterator[dict]:
    """Yield a smaller window, and simpler values of the softcap, the sinks and the hidden keys."""
    if case.window is not None:
        left, right = case.window
        if None not in case.window:
            yield from ({"window": side} for side in ((left, None), (None, right)))
        yield from ({"window": (n, right)} for n in _below_or_0(left))
        yield from ({"window": (left, n)} for n in _below_or_0(right))
        yield from ({"window": (n, n)} for n in _below_or_0(left) if left == right)
    for name in ("softcap", "sinks", "hidden"):
        values = law.draws.values(name, impl)
        if (value := FEATURES[name].value(case)) in values:
            yield from ({name: simpler} for simpler in values[: values.index(value)])
    if case.headdim_v != case.headdim:
        pairs = sorted(impl.supports.headdims_v, key=sum)
        yield from ({"headdim": d, "headdim_v": dv} for d, dv in pairs if d + dv < case.headdim + case.headdim_v)


def _below_or_0(n: int | None) -> list[int]:
    return [] if not n else [0, *_below(n)]


def _whole_row_hidden(impl: Implementation, case: Case) -> Iterator[dict]:
    """Yield fewer heads, keys or queries, with a mask that hides a whole row.

    Such a mask hides whole tiles with every seed, while other masks do so with one seed in
    hundreds.
    """
    if case.bias_mask not in HIDING or case.bias_mask == "dead_row":
        return
    kind = "boolean_matrix" if case.bias in BOOLEAN else "matrix"
    row = NO_BIAS | dict(bias=kind, bias_mask="dead_row", bias_keeps_key=impl.empty_rows != "zero")
    if case.batch * case.nheads > 1:
        yield row | dict(batch=1, nheads=1, nheads_k=1)
    yield row | dict(seqlen_q=min(case.seqlen_q, case.seqlen_k - 1), seqlen_k=case.seqlen_k - 1)
    if case.seqlen_q > 1:
        yield row | dict(seqlen_q=1)


def _below(n: int) -> list[int]:
    """Return a few numbers below n, the smallest first."""
    return sorted({m for m in (1, 2, 3, n // 4, n // 2, n // 2 + 1, 3 * n // 4, n - 2, n - 1) if 1 <= m < n})
