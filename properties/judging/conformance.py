"""Tries out the contract, once for each implementation, and reports every problem together with what to change.

Only what no law can judge belongs here: whether calls go through, and whether what comes back is what was declared.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import torch
from hypothesis.errors import Unsatisfiable

from impls.call import Outputs
from impls.contract import ContractError, Implementation
from properties.cases.case import Case
from properties.cases.drawing import draw_each
from properties.cases.features import FEATURES
from properties.cases.strategies import Draws, attention_cases, fitted
from properties.cases.support import unsupported
from properties.failures import AnotherCase, LawBroken, Raises, Reason, Undecided, is_out_of_memory
from properties.law import laws
from properties.trial import Trial

ANYTHING = Draws.of(layout=FEATURES["layout"].values)

DRAWN = 5  # cases, of which the largest becomes the plain one: with one query and one head all layouts are alike

# By id and device. The implementation is kept with its problems, so that its id is not used again.
_known: dict[tuple[int, str], tuple[Implementation, list[str] | Undecided]] = {}


def problems(impl: Implementation, device: str, write_down: Callable[[str], None] = lambda text: None) -> list[str]:
    """What breaks the contract, each in a line that says what to change; [] if nothing does. The answer is kept.

    write_down is called with each case before it is launched. Raises Undecided where this machine could not tell.
    """
    key = (id(impl), device)
    if key not in _known:
        try:
            _known[key] = (impl, _try_out(impl, device, write_down))
        except ContractError as error:
            _known[key] = (impl, error.problems)
        except Undecided as undecided:
            if undecided.why is not Reason.NO_CASE:  # memory may suffice the next time
                raise
            _known[key] = (impl, undecided)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise Undecided("out of memory while the contract was tried") from error
            raise
    if isinstance(answer := _known[key][1], Undecided):
        raise answer
    return answer


def _try_out(impl: Implementation, device: str, write_down: Callable[[str], None]) -> list[str]:
    found: dict[str, str | None] = {}  # problem -> the first feature that showed it; None for a plain case
    stale = sorted(set(impl.known_failures) - set(laws()))
    if stale:
        found[f"known_failures names {', '.join(stale)}: there is no such law"] = None
    for feature, case in sample(impl, device):
        write_down(f"properties/test_contract.py::test_contract_is_kept[{impl.name}] {case}")
        for problem in _problems_of(impl, case, device):
            found.setdefault(problem, feature)
    return [problem if feature is None else f"{problem}   [with {feature}]" for problem, feature in found.items()]


def sample(impl: Implementation, device: str = "cpu") -> list[tuple[str | None, Case]]:
    """One plain case (None), and one for each value of a feature that is declared and worth a try (`Feature.tried`).

    Raises Undecided if no case is supported, neither these nor drawn ones.
    """
    plain = _plain(impl)
    if fitting := _fitting(impl, plain):
        return fitting
    drawn: list[Case] = []  # `accepts` may want another regime or head dim
    try:
        draw_each(attention_cases(impl, device, ANYTHING), 0, DRAWN, drawn.append, shrink=False)
    except Unsatisfiable:
        reason = f"there is no case to try the contract with: {unsupported(impl, plain)} [for {plain}]"
        raise Undecided(reason, Reason.NO_CASE) from None
    return _fitting(impl, max(drawn, key=lambda case: min(case.seqlen_q, case.seqlen_k) * case.nheads))


def _plain(impl: Implementation) -> Case:
    s = impl.supports
    headdim = min(s.headdim_list, key=lambda d: abs(d - 64))
    dtype = FEATURES["dtype"].drawn(s, None)[0]
    return Case(
        batch=2, seqlen_q=64, seqlen_k=64, nheads=3, nheads_k=3, headdim=headdim, dtype=dtype,
        causal=s.causal == "always",
    )  # fmt: skip


def _fitting(impl: Implementation, plain: Case) -> list[tuple[str | None, Case]]:
    """The plain case, and those that have another feature, as far as they are supported."""
    wanted = [(None, plain)]
    for feature in FEATURES.values():
        taken = [value for value in feature.tried if feature.takes(impl.supports, value)]
        wanted += [(feature.words(v), feature.changed(plain, v)) for v in taken if v != feature.value(plain)]
    fitting = []
    for feature, case in wanted:
        try:
            fitting.append((feature, fitted(impl, case, ANYTHING)))
        except AnotherCase:
            continue
    return fitting


def _problems_of(impl: Implementation, case: Case, device: str) -> list[str]:
    trial = Trial(impl, case, device)
    handed, placed = trial.place(trial.x, fill=0.0)
    try:
        got = trial.call(handed, backward=impl.backward is not None)
    except LawBroken as broken:
        where = broken.observed[:-1] if isinstance(broken, Raises) else broken.observed  # the last line is advice
        return [_with_advice(broken.headline), *where]
    except Undecided as undecided:
        if undecided.why is not Reason.INTERPRETER:
            raise
        got = Outputs()  # all but the values was checked
    changed = [name for name, p in placed.items() if p.written()]
    found = [f"{name} is modified: inputs should come back as they were" for name in changed]
    if got.lse is not None and not changed:
        found += _lse_problems(trial, got.lse)
    return found


def _lse_problems(trial: Trial, lse: torch.Tensor) -> list[str]:
    """Recognises the usual other meanings of "lse" by the values of one plain case."""
    want = trial.want().lse
    seen = want.isfinite()
    got, want = lse.double()[seen], want[seen]

    def looks_like(other: torch.Tensor) -> bool:
        return bool(((got - other).abs() < 0.02 * (1 + other.abs())).all())

    if not seen.any() or looks_like(want):
        return []
    if looks_like(want / math.log(2)):
        return ['lse is in base 2: declare lse="log2", or multiply it by ln 2']
    if trial.impl.lse == "log2" and looks_like(want * math.log(2)):
        return ['lse is in natural log: declare lse="natural"']
    if looks_like(-want):
        return ["lse has the wrong sign: should be log sum_j exp(score)"]
    if looks_like(want.exp()):
        return ["lse is the sum itself, not its logarithm: should be log sum_j exp(score)"]
    return []


def _with_advice(headline: str) -> str:
    keyword = re.search(r"unexpected keyword argument '(\w+)'", headline)  # Python's words
    if keyword:
        known = FEATURES.get(keyword[1])
        return f"{headline}: take the keyword, or declare {known.advice if known else 'less in supports'}"
    absent = re.search(r"missing \d+ required .*argument", headline)
    if absent:
        return f"{headline}: only declared keywords are passed; give the others a default"
    return headline
