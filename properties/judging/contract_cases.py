"""The cases for trying the contract: a plain one, one for each feature value, and other sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hypothesis.errors import Unsatisfiable

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.drawing import Drawing
from flash_attest.properties.cases.draws import Draws
from flash_attest.properties.cases.feature import Feature
from flash_attest.properties.cases.features import FEATURES
from flash_attest.properties.cases.fitting import fitted
from flash_attest.properties.cases.strategies import attention_cases
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.failures import AnotherCase, Reason, Undecided
from flash_attest.properties.judging.clues import Clue, headdim_clue, heads_clue, length_clue, value_clue

ANYTHING = Draws.of(layout=FEATURES["layout"].values, bias=FEATURES["bias"].values)
DRAWN = 5  # cases, of which the largest becomes the plain one: with one query and one head, all layouts are the same


def all_values(impl: Implementation, feature: Feature, value: Any, case: Case, plain: Case, wrong: Callable) -> Clue:
    """Return the clue for a value that shows a problem, with the feature's other such values."""
    others = [v for v in feature.values if v != value and v not in feature.tried and v != feature.value(plain)]
    others = [v for v in others if feature.takes(impl.supports, v)]
    cases = [(v, nearest(impl, feature.adapted(feature.changed(case, v), impl.supports))) for v in others]
    values = [value, *(v for v, other in cases if other and wrong(other))]
    return value_clue(feature, values, feature.value(plain))


def sample(impl: Implementation, device: str = "cpu") -> list[Case]:
    """Return the plain case, and one for each declared feature value in `Feature.tried`.

    Raises Undecided if no case is supported, not even a drawn one.
    """
    return _to_try(impl, plain_case(impl, device))


def _to_try(impl: Implementation, plain: Case) -> list[Case]:
    return [*filter(None, [nearest(impl, plain)]), *(case for _, _, case in of_features(impl, plain))]


def plain_case(impl: Implementation, device: str) -> Case:
    """Return a case of medium sizes without features. It may itself be unsupported.

    If neither it nor any case with a feature is supported, a drawn case is returned. Raises
    Undecided if none can be drawn.
    """
    plain = _middling(impl)
    if _to_try(impl, plain):
        return plain
    try:  # `accepts` may require another regime or head dim
        drawn = Drawing(attention_cases(impl, device, ANYTHING), 0, DRAWN).cases
    except Unsatisfiable:
        reason = f"there is no case to try the contract with: {unsupported(impl, plain)} [for {plain}]"
        raise Undecided(reason, Reason.NO_CASE) from None
    return max(drawn, key=lambda case: min(case.seqlen_q, case.seqlen_k) * case.nheads)


def _middling(impl: Implementation) -> Case:
    s = impl.supports
    headdim = min(s.headdim_list, key=lambda d: abs(d - 64))
    dtype = FEATURES["dtype"].drawn(s, None)[0]
    return Case(
        batch=2, seqlen_q=64, seqlen_k=64, nheads=3, nheads_k=3, headdim=headdim, dtype=dtype,
        causal=s.causal == "always",
    )  # fmt: skip


def of_features(impl: Implementation, plain: Case) -> Iterator[tuple[Feature, Any, Case]]:
    """Yield (feature, value, the plain case with that value) for each value worth trying.

    Values that are not declared are skipped.
    """
    for feature in FEATURES.values():
        for value in feature.tried:
            if feature.takes(impl.supports, value) and value != feature.value(plain):
                case = nearest(impl, feature.adapted(feature.changed(plain, value), impl.supports))
                if case is not None:
                    yield feature, value, case


def nearest(impl: Implementation, case: Case) -> Case | None:
    """Return the case, or the nearest supported one; None if there is none nearby."""
    try:
        return fitted(impl, case, ANYTHING)
    except AnotherCase:
        return None


def other_size(impl: Implementation, plain: Case, wrong: Callable[[Case], list[str]]) -> tuple[Clue, Case] | None:
    """Return the clue of a wrong plain case and the nearest right case without it, or None."""

    def right(case: Case | None) -> bool:
        """Return whether the case can be tried and shows no problem."""
        try:
            return case is not None and not wrong(case)
        except Undecided:
            return False

    for clue, nearby in _sizes(impl, plain, right):
        for case in nearby:
            case = nearest(impl, case)
            if case is not None and not clue.has(case) and right(case):
                return clue, case
    return None


def _sizes(
    impl: Implementation, plain: Case, right: Callable[[Case | None], bool]
) -> Iterator[tuple[Clue, list[Case]]]:
    """Yield clues on which a problem may depend, likely ones first, each with cases without it."""

    def wrong_too(case: Case) -> bool:
        case = nearest(impl, case)
        return case is not None and not right(case)

    known = impl.supports.headdim_list
    above = [d for d in known if d > plain.headdim][:1]
    others = dict.fromkeys([*[d for d in known if d < plain.headdim][-1:], *known[:1], *above])
    nearby = [plain.but(headdim=d) for d in others if d != plain.headdim]
    if nearby:
        larger = known[0] < plain.headdim and any(wrong_too(plain.but(headdim=d)) for d in above)
        yield headdim_clue(impl, plain.headdim, larger=larger), nearby
    n = plain.seqlen_q
    nearby = [plain.but(seqlen_q=m, seqlen_k=m) for m in (n // 2, 2 * n, n + 1)]
    yield length_clue(n, larger=wrong_too(plain.but(seqlen_q=2 * n, seqlen_k=2 * n))), nearby
    yield heads_clue(), [plain.but(batch=1, nheads=1, nheads_k=1)]
    for name in ("dtype", "causal"):
        feature, value = FEATURES[name], FEATURES[name].value(plain)
        for other in feature.drawn(impl.supports, None):
            if other != value:
                yield value_clue(feature, [value], other), [feature.changed(plain, other)]
