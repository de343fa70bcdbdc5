"""Calls that differ from a case in one thing, which the key of a cache may leave out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from random import Random

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import BIASES, LAYOUTS, Case, CaseError
from flash_attest.properties.cases.draws import Draws
from flash_attest.properties.cases.features import FEATURES
from flash_attest.properties.cases.fitting import fitted
from flash_attest.properties.cases.kinds import has_kind
from flash_attest.properties.failures import AnotherCase

MORE = 33  # keys or queries: more tiles of up to 32, and another remainder
MOST = {"size": 2, "feature": 4}  # siblings in one of several drawn cases
SEED = 0  # of a run by default, whose kinds of kernels are compiled anyway
# Inputs of another regime are other values alone, and `_sizes` has other lengths.
NO_SIBLING = ("regime", "cross", "headdim")
ANY = Draws.of(layout=LAYOUTS, bias=BIASES)


def siblings(impl: Implementation, case: Case, turn: int | None) -> list[Case]:
    """Return supported cases that differ from a case in one thing.

    turn: the number of the case in a run, as each of several cases gets another part of them. None:
    all of them. Shorter ones come first, and the longest last, so that a call follows shorter and
    longer ones.
    """
    sizes = _some(impl, case, [[other] for other in _sizes(impl, case)], MOST["size"], turn)
    features = _some(impl, case, _features(impl, case), MOST["feature"], turn)
    shorter = [other for other in sizes if other.products < case.products]
    longer = sorted((other for other in sizes if other not in shorter), key=lambda other: other.products)
    return shorter + features + longer


def _some(impl: Implementation, case: Case, kinds: list[list[Case]], most: int, turn: int | None) -> list[Case]:
    """Return a case of each of the next `most` kinds, or all; each is supported, or near to it."""
    if turn is not None and kinds:
        Random(impl.name).shuffle(kinds)
        chosen = [kinds[(turn * most + n) % len(kinds)] for n in range(most)]
        kinds = [[others[case.seed % len(others)]] for others in chosen]
    found: dict[Case, None] = {}
    for other in chain(*kinds):
        with suppress(AnotherCase):
            if (near := fitted(impl, other, ANY)) != case:
                found[near] = None
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


def _features(impl: Implementation, case: Case) -> list[list[Case]]:
    """Return the case with each other value of a feature, for each feature that has any.

    Kernels that are compiled for each kind of a case are those of a whole run.
    """
    changed: dict[str, list[Case]] = {}
    for feature in FEATURES.values():
        for value in () if feature.name in NO_SIBLING else feature.values:
            if value != feature.value(case) and feature.takes(impl.supports, value):
                with suppress(CaseError):  # two features may exclude each other
                    other = feature.adapted(feature.changed(case, value), impl.supports)
                    changed.setdefault(feature.name, []).append(other)
    headdims = impl.supports.headdim_list
    if case.headdim_v == case.headdim and len(headdims) > 1:
        place = headdims.index(case.headdim)
        changed["headdim"] = [case.but(headdim=headdims[place + 1 if place + 1 < len(headdims) else place - 1])]
    of_kinds = ([other for other in others if not impl.compiles or has_kind(impl, SEED, other)]
                for others in changed.values())  # fmt: skip
    return [others for others in of_kinds if others]
