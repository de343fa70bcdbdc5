"""Draws a run, given its number: implementation, layer, perturbations and case.

Equal seeds and numbers give equal runs, for the same implementations and perturbations. A pair of
implementation and layer that has been given up is skipped, which changes no other draw.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence

from hypothesis.errors import Unsatisfiable

from flash_attest.impls.contract.entry import Entry
from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.drawing import Drawing
from flash_attest.properties.cases.strategies import attention_cases
from flash_attest.races.perturb import NONE
from flash_attest.sweep.plan import Job, Layer
from flash_attest.sweep.records import Run

ALL, SOME = 0.5, 0.4  # the probability of all perturbations, and of some of them; otherwise there are none
CHOSEN = 4  # every fourth run has a case that its law chooses, if there are such cases

Pair = tuple[Entry, Layer]


class NoCase(Exception):
    """The implementation supports no case that the law can use."""

    def __init__(self, pair: Pair):
        super().__init__(f"{pair[0].name}: no case that {pair[1].law_name} wants lies in what it supports")
        self.pair = pair


def drawn(job: Job, number: int, pairs: Sequence[Pair], versions: dict[str, str], left: Sequence[Pair]) -> Run | None:
    """Return the run with this number, or None if its pair is not among `left`.

    Raises NoCase if the pair has no case.
    """
    draw = random.Random(f"{job.seed} {number}")
    name = draw.choice(sorted({entry.name for entry, _ in pairs}))  # all implementations are equally likely
    mine = [pair for pair in pairs if pair[0].name == name]
    (pair,) = draw.choices(mine, [layer.turns[job.device] for _, layer in mine])
    if pair not in left:
        return None
    entry, layer = pair
    device = layer.law.judged_on(job.device)
    case = _case(entry.impl, layer, device, zlib.crc32(f"{job.seed} {number}".encode()))
    if case is None:
        raise NoCase(pair)
    names = job.perturbations.get(device, ()) if layer.perturbed else ()
    return Run(
        seed=job.seed, number=number, session=job.session, impl=name, version=versions[name], layer=layer.name,
        law=layer.law_name, case_=str(case), perturbations=_perturbations(draw, names), asked=job.repeats, device=device,
    )  # fmt: skip


def _case(impl: Implementation, layer: Layer, device: str, number: int) -> Case | None:
    """Return a drawn case, or one of the cases that the law chooses, with another seed."""
    chosen = layer.law.chosen(impl) if number % CHOSEN == 0 else ()
    if wanted := [case for case in chosen if layer.law.draws.excludes(case) is None]:
        return wanted[number // CHOSEN % len(wanted)].but(seed=number % 1000)
    try:
        return Drawing(attention_cases(impl, device, layer.law.draws), number, 1).cases[0]
    except Unsatisfiable:
        return None


def _perturbations(draw: random.Random, names: Sequence[str]) -> str:
    """Draw names of perturbations, in the form that --perturb takes; "" stands for all."""
    luck = draw.random()
    some = [name for name in names if draw.random() < 0.5]
    if not names or luck < ALL:
        return ""
    return ",".join(some) if luck < ALL + SOME and some else NONE
