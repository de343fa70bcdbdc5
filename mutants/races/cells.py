"""A cell of the matrix: one planted race before one layer, under one perturbation. Found or not, and after how much."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from flash_attest.impls import Implementation
from flash_attest.mutants.judging import is_not_compiled
from flash_attest.mutants.mutant import STREAMS, TRACED
from flash_attest.properties.cases.case import Case
from flash_attest.properties.cases.support import unsupported
from flash_attest.properties.failures import AnotherCase, LawBroken, Raises, Undecided
from flash_attest.properties.judging.known import Known
from flash_attest.properties.judging.origin import OURS, Origin
from flash_attest.properties.judging.plan import Plan
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN
from flash_attest.properties.law import laws
from flash_attest.races.perturb import ALL, NONE
from flash_attest.runner import alone

LAYERS = {  # the law of each layer
    "trace": TRACED,
    "repeat": "test_repeats_agree",
    "copies": "test_copies_agree",
    "streams": STREAMS,
    "sanitizer": "test_sanitizers_report_nothing",
}
WHERE = {"trace": "cpu", "streams": "cuda", "sanitizer": "cuda"}  # the others: everywhere
RAISES = "raises"  # in place of a number
EVERYTHING = "all"  # the name of a cell with the perturbations that are the default
LADDER = (2, 5, 10, 20, 50, 100, 200, 500, 1000)  # of repeats; a law makes two at least
A_LAUNCH = 10  # test_copies_agree launches once for so many repeats
CASES = 5  # of a layer that does not repeat: other seeds
# Batch, heads, length: a few tiles, the last of them not whole; more blocks than there are multiprocessors.
SIZES = {"cpu": (1, 5, 70), "cuda": (4, 16, 500)}
SANITIZED = (1, 2, 70)  # under compute-sanitizer, which is a thousand times as slow
HEADDIM = {"cpu": 8, "cuda": 32}  # of a case, or the least that is supported
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@dataclass(frozen=True)
class Cell:
    """A layer, and for those that repeat the perturbation, by name: NONE, one, or EVERYTHING."""

    layer: str
    perturbation: str = ""

    def __str__(self) -> str:
        return f"{self.layer} {self.perturbation}".strip()

    @property
    def default(self) -> bool:
        """Whether a run of the suite has it without an option."""
        return self.perturbation in ("", EVERYTHING)


def cells(device: str) -> list[Cell]:
    """The columns of the matrix on a device."""
    found = []
    for layer in (layer for layer in LAYERS if WHERE.get(layer, device) == device):
        single = [name for name, each in ALL.items() if device in each.devices] if layer in ("repeat", "copies") else []
        found += [Cell(layer, name) for name in (NONE, *single, EVERYTHING)] if single else [Cell(layer)]
    return found


def case_for(impl: Implementation, device: str, sizes: tuple[int, int, int] | None = None) -> Case:
    """A case with what an implementation declares, but for GQA and scales."""
    s, (batch, nheads, length) = impl.supports, sizes or SIZES[device]
    headdims = [d for d in s.headdim_list if d <= HEADDIM[device]]
    case = Case(
        batch, length, length, nheads, nheads, max(headdims) if headdims else min(s.headdim_list),
        next(dtype for dtype in DTYPES if dtype in s.dtypes), causal=s.causal == "always",
    )  # fmt: skip
    return case.but(bias=s.bias_kinds[0]) if s.bias_kinds else case


def verdict_of(
    cell: Cell,
    impl: Implementation,
    device: str,
    repeats: int,
    seed: int = 0,
    origin: Origin = OURS,
    known: Known | None = None,
) -> tuple[str, str]:
    """fail, and "7: headline" (after 7 repeats, launches of copies, or cases); pass; refused or unknown, with the reason.

    "raises: headline" where the call raises, which every law sees.

    origin: where another process finds the implementation. known: what this process remembers between two cells.
    """
    impl = replace(impl, share=1.0)  # fewer repeats would be no measure
    case = case_for(impl, device, SANITIZED if cell.layer == "sanitizer" else None)
    if refusal := unsupported(impl, case):
        return REFUSED, str(refusal)
    law = laws()[LAYERS[cell.layer]]
    perturbations = "" if cell.perturbation == EVERYTHING else cell.perturbation
    plan = Plan(
        device, seed=seed, perturbations=perturbations, origin=origin, alone=alone.command, known=known or Known()
    )

    def tried(n: int, at: Case) -> LawBroken | None:
        """What is found in so many repeats of a case."""
        try:
            law.hold(replace(plan, repeats=n).trial(impl, at))
        except LawBroken as broken:
            if broken.__cause__ is not None and is_not_compiled(broken.__cause__):
                raise Undecided(broken.headline) from broken
            return broken
        return None

    try:
        for number, broken in _tries(cell, case.but(seed=seed), repeats, tried):
            if broken is not None:
                return FAIL, f"{RAISES if isinstance(broken, Raises) else number}: {broken.headline}"
    except AnotherCase:
        return REFUSED, f"the law says nothing about {case}"
    except Undecided as undecided:
        return UNKNOWN, str(undecided)
    return PASS, ""


def _tries(
    cell: Cell, case: Case, repeats: int, tried: Callable[[int, Case], LawBroken | None]
) -> Iterator[tuple[int, LawBroken | None]]:
    """(how much it is by then, what was found): more and more repeats of a case, or one case after another."""
    if cell.layer not in ("repeat", "copies"):
        few = 1 if cell.layer == "sanitizer" else CASES
        yield from ((n + 1, tried(repeats, case.but(seed=case.seed + n))) for n in range(few))
        return
    each = A_LAUNCH if cell.layer == "copies" else 1
    most = max(LADDER[0], repeats // each)
    if broken := tried(most * each, case):  # otherwise fewer would be a waste of time
        yield from ((n, tried(n * each, case)) for n in LADDER if n < most)
        yield most, broken
