"""Calls that differ from a case in one thing, which the key of a cache may leave out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import BIASES, LAYOUTS, Case, CaseError
from flash_attest.properties.cases.draws import Draws
from flash_attest.properties.cases.features import FEATURES
from flash_attest.properties.cases.fitting import fitted
from flash_attest.properties.cases.kinds import has_kind
from flash_attest.properties.cases.random_tensors import RandomTensors
from flash_attest.properties.failures import AnotherCase

MORE = 33  # keys or queries: more tiles of up to 32, and another remainder
MOST = 2  # siblings of each kind, in one of several drawn cases
SEED = 0  # of a run by default, whose kinds of kernels are compiled anyway
# Inputs of another regime are other values alone, and `_sizes` has other lengths.
NO_SIBLING = ("regime", "cross", "headdim")
ANY = Draws.of(layout=LAYOUTS, bias=BIASES)


def siblings(impl: Implementation, case: Case, random: RandomTensors, every: bool) -> list[Case]:
    """Return supported cases that differ from a case in one thing: all, or some random ones.

    Shorter ones come first, and the longest last, so that a call follows shorter and longer ones.
    """
    features = _some(impl, case, list(_features(impl, case)), random, every)
    sizes = _some(impl, case, [("size", other) for other in _sizes(impl, case)], random, every)
    shorter = [other for other in sizes if _length(other) < _length(case)]
    longer = sorted((other for other in sizes if other not in shorter), key=_length)
    return shorter + features + longer


def _length(case: Case) -> int:
    return case.batch * case.nheads * case.seqlen_q * case.seqlen_k


def _some(
    impl: Implementation, case: Case, candidates: list[tuple[str, Case]], random: RandomTensors, every: bool
) -> list[Case]:
    """Return the candidates that are supported, or cases near them: all, or MOST of them, and one
    for each feature.
    """
    found: dict[Case, str] = {}
    for number in range(len(candidates)) if every else random.order(len(candidates)).tolist():
        name, other = candidates[number]
        if not every and (len(found) == MOST or (name != "size" and name in found.values())):
            continue
        with suppress(AnotherCase):
            if (near := fitted(impl, other, ANY)) != case:
                found.setdefault(near, name)
    return list(found)


def _sizes(impl: Implementation, case: Case) -> Iterator[Case]:
    q, k, group = case.seqlen_q, case.seqlen_k, case.nheads // case.nheads_k
    if q == k:
        yield from (case.but(seqlen_q=n, seqlen_k=n) for n in (1, (q + 1) // 2, q + MORE))
    if impl.supports.cross:
        yield from (case.but(seqlen_q=n) for n in (1, q + MORE))
        yield from (case.but(seqlen_k=n) for n in ((k + 1) // 2, k + MORE))
    yield case.but(batch=case.batch + 2)
    yield case.but(nheads=(case.nheads_k + 1) * group, nheads_k=case.nheads_k + 1)
    if impl.supports.gqa and group > 1:
        yield case.but(nheads_k=case.nheads)


def _features(impl: Implementation, case: Case) -> Iterator[tuple[str, Case]]:
    """Yield (feature, the case with another value of it).

    Kernels that are compiled for each kind of a case are those of a whole run.
    """
    changed: list[tuple[str, Case]] = []
    for feature in FEATURES.values():
        for value in () if feature.name in NO_SIBLING else feature.values:
            if value != feature.value(case) and feature.takes(impl.supports, value):
                with suppress(CaseError):  # two features may exclude each other
                    changed.append((feature.name, feature.adapted(feature.changed(case, value), impl.supports)))
    headdims = impl.supports.headdim_list
    if case.headdim_v == case.headdim and len(headdims) > 1:
        place = headdims.index(case.headdim)
        other = headdims[place + 1 if place + 1 < len(headdims) else place - 1]
        changed.append(("headdim", case.but(headdim=other)))
    yield from ((name, other) for name, other in changed if not impl.compiles or has_kind(impl, SEED, other))
