"""Finds the nearest case to a drawn one that an implementation accepts and a law wants."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flash_attest.impls.contract.arguments import rounded_up
from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.draws import ANYTHING, Draws
from flash_attest.properties.cases.feature import Feature
from flash_attest.properties.cases.features import FEATURES, NO_BIAS
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.failures import AnotherCase

MULTIPLES = (1, 8, 16, 32, 64, 128)  # an implementation may require lengths that are multiples of one of these


def fitted(impl: Implementation, case: Case, want: Draws) -> Case:
    """Return the case, or the nearest one that the implementation accepts and the law wants.

    One or both lengths are rounded up to a multiple, as an implementation that takes only multiples
    of 32 would refuse 31 of 32 drawn lengths. A single query is tried, too, as a decoding kernel
    may take nothing else. Raises AnotherCase if no such case is found.
    """

    if unsupported(impl, case) is None and want.excludes(case) is None:
        return case
    # The other features have the same value in all cases that are near.
    if any(not _takes(impl, want, feature, feature.value(case)) for feature in _STEADY):
        raise AnotherCase

    def fits(c: Case) -> bool:
        return unsupported(impl, c, _CHANGING) is None and want.excludes(c, _CHANGING) is None

    if impl.supports.accepts is not None or impl.empty_rows != "zero" or case.bias_mask == "finite":
        for candidate in _nearby(case, may_differ=want.cross is not True, keeping=impl.empty_rows != "zero"):
            if fits(candidate):
                return candidate
    raise AnotherCase


_CHANGED = {"seqlen_q", "seqlen_k", "bias", "bias_mask", "bias_keeps_key"}  # fields, by `_nearby`
_CHANGING = tuple(feature for feature in FEATURES.values() if feature.of is not None or feature.name in _CHANGED)
_STEADY = tuple(feature for feature in FEATURES.values() if feature not in _CHANGING)


def _takes(impl: Implementation, want: Draws, feature: Feature, value: Any) -> bool:
    """Return whether the implementation and the law take a value of a feature."""
    wanted = want.wanted(feature)
    return feature.takes(impl.supports, value) and (wanted is None or value in wanted)


def _nearby(case: Case, may_differ: bool, keeping: bool) -> Iterable[Case]:
    """Yield each nearby case once, as making a case costs more than everything else here.

    keeping: also try a bias whose mask keeps a key in each row.
    """
    bias = dict(bias=case.bias, bias_mask=case.bias_mask, bias_keeps_key=case.bias_keeps_key)
    biases = [bias, bias | dict(bias_keeps_key=True)] if keeping and case.bias is not None else [bias]
    biases.append(bias | dict(bias_mask="none"))
    lengths = [tuple(rounded_up(n, multiple) for n in (case.seqlen_q, case.seqlen_k)) for multiple in MULTIPLES]
    sizes = []
    for q, k in lengths:
        sizes += [(q, k, bias) for bias in biases]
        sizes += [(q, q, bias) for bias in (*biases, NO_BIAS)] if may_differ else []
    for q, k in lengths:
        sizes += [(*pair, bias) for pair in ((case.seqlen_q, k), (q, case.seqlen_k), (1, k)) for bias in biases]
    seen = set()
    for seqlen_q, seqlen_k, bias in sizes:
        key = (seqlen_q, seqlen_k, bias["bias"], bias["bias_mask"], bias["bias_keeps_key"])
        if key not in seen:
            seen.add(key)
            yield case.but(seqlen_q=seqlen_q, seqlen_k=seqlen_k, **bias)


def multiple(impl: Implementation) -> int:
    """Return the number of which `accepts` takes only multiples as lengths; 1 if there is none."""
    s = impl.supports
    if s.accepts is None:
        return 1
    headdim = min(s.headdim_list, key=lambda d: abs(d - 64))
    plain = Case(headdim=headdim, dtype=FEATURES["dtype"].drawn(s, None)[0], causal=s.causal == "always")
    try:
        least = max((case := fitted(impl, plain, ANYTHING)).seqlen_q, case.seqlen_k)
    except AnotherCase:
        return 1
    longer = [
        unsupported(impl, case.but(**{name: n for name in ("seqlen_q", "seqlen_k") if getattr(case, name) == least}))
        for n in (2 * least, 2 * least + 1)
    ]
    return least if longer[0] is None and longer[1] is not None else 1
