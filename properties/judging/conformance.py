"""The contract, tried out once for each implementation: every problem is reported together, in words that say what to
change. Only what no law can judge belongs here: whether calls go through, and what comes back is what was declared.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import torch

from impls.contract import DTYPES, ContractError, Implementation
from properties.cases.case import Case
from properties.cases.strategies import Draws, fitted
from properties.failures import AnotherCase, LawBroken
from properties.law import laws
from properties.trial import Trial

_known: dict[tuple[int, str], tuple[Implementation, list[str]]] = {}  # holds on to each, so that no id comes back


def problems(impl: Implementation, device: str, write_down: Callable[[str], None] = lambda text: None) -> list[str]:
    """What breaks the contract, each in a line that says what to change; [] if nothing does. Tried once, then known.

    write_down is called with each case before it is launched. Raises Undecided where this machine could not tell.
    """
    key = (id(impl), device)
    if key not in _known:
        try:
            _known[key] = (impl, _try_out(impl, device, write_down))
        except ContractError as error:
            _known[key] = (impl, error.problems)
    return _known[key][1]


def _try_out(impl: Implementation, device: str, write_down: Callable[[str], None]) -> list[str]:
    found: dict[str, str] = {}  # problem -> the first feature that showed it
    stale = sorted(set(impl.known_failures) - set(laws()))
    if stale:
        found[f"known_failures names {', '.join(stale)}: there is no such law"] = "plain"
    for feature, case in sample(impl):
        write_down(f"properties/test_contract.py::test_contract_is_kept[{impl.name}] {case}")
        for problem in _problems_of(impl, case, device):
            found.setdefault(problem, feature)
    return [problem if feature == "plain" else f"{problem}   [with {feature}]" for problem, feature in found.items()]


def sample(impl: Implementation) -> list[tuple[str, Case]]:
    """One plain case, and one for each feature that is declared."""
    s = impl.supports
    dtypes = [t for t in DTYPES if t in s.dtypes]
    headdim = min(s.headdim_list, key=lambda d: abs(d - 64))
    causal = s.causal == "always"
    plain = Case(
        batch=2, seqlen_q=64, seqlen_k=64, nheads=3, nheads_k=3, headdim=headdim, dtype=dtypes[0], causal=causal
    )
    wanted = [("plain", plain)]
    wanted += [(f"dtype {str(t).removeprefix('torch.')}", plain.but(dtype=t)) for t in dtypes[1:]]
    if s.causal == "optional":
        wanted.append(("causal=True", plain.but(causal=True)))
    wanted += [(f"bias {kind}", plain.but(bias=kind)) for kind in s.bias_kinds]
    if s.cross:
        wanted.append(("seqlen_k != seqlen_q", plain.but(seqlen_k=128)))
    if s.gqa:
        wanted.append(("nheads_k < nheads", plain.but(nheads=6, nheads_k=3)))
    if s.softmax_scale:
        wanted.append(("softmax_scale=0.5", plain.but(softmax_scale=0.5)))
    if s.strides:
        wanted.append(("strided inputs", plain.but(layout="transposed")))
    fitting = []
    for feature, case in wanted:
        try:
            fitting.append((feature, fitted(impl, case, Draws())))
        except AnotherCase:
            continue
    return fitting


def _problems_of(impl: Implementation, case: Case, device: str) -> list[str]:
    trial = Trial(impl, case, device)
    handed, placed = trial.place(trial.x, fill=0.0)
    try:
        got = trial.call(handed, backward=impl.backward is not None)
    except LawBroken as broken:
        return [_with_advice(broken.headline), *broken.observed[:-1]]
    changed = [name for name, p in placed.items() if p.written()]
    found = [f"{name} is modified: inputs should come back as they were" for name in changed]
    if got.lse is not None and not changed:
        found += _lse_problems(trial, got.lse)
    return found


def _lse_problems(trial: Trial, lse: torch.Tensor) -> list[str]:
    """The usual other meanings of "lse", told apart by the values of one plain case."""
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
    keyword = re.search(r"unexpected keyword argument '(\w+)'", headline)
    if keyword:
        other = {
            "causal": 'supports.causal="never" or "always"',
            "bias": 'supports.bias="none"',
            "softmax_scale": "supports.softmax_scale=False",
        }.get(keyword[1], "less in supports")
        return f"{headline}: take the keyword, or declare {other}"
    absent = re.search(r"missing \d+ required .*argument", headline)
    if absent:
        return f"{headline}: only declared keywords are passed; give the others a default"
    return headline
