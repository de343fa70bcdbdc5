"""A cell of the matrix: one planted race, judged by one layer under one perturbation.

Is it found, and after how many repeats?
"""

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
# The device of a layer. The other layers run on both devices.
WHERE = {"trace": "cpu", "streams": "cuda", "sanitizer": "cuda"}
RAISES = "raises"  # used in place of a number
EVERYTHING = "all"  # names a cell with the default perturbations
LADDER = (2, 5, 10, 20, 50, 100, 200, 500, 1000)  # numbers of repeats; a law makes at least 2 calls
A_LAUNCH = 10  # repeats for which test_copies_agree launches once
CASES = 5  # seeds for a layer that does not repeat
# Batch, heads, length: a few tiles, the last of which is partial, and more blocks than there are
# multiprocessors.
SIZES = {"cpu": (1, 5, 70), "cuda": (4, 16, 500)}
SANITIZED = (1, 2, 70)  # under compute-sanitizer, which is a thousand times slower
HEADDIM = {"cpu": 8, "cuda": 32}  # of a case, unless only larger ones are supported
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@dataclass(frozen=True)
class Cell:
    """A layer and, for a layer that repeats, the perturbation by name: NONE, one, or EVERYTHING."""

    layer: str
    perturbation: str = ""

    def __str__(self) -> str:
        return f"{self.layer} {self.perturbation}".strip()

    @property
    def default(self) -> bool:
        """Whether a run of the suite includes this cell without an option."""
        return self.perturbation in ("", EVERYTHING)


def cells(device: str) -> list[Cell]:
    """Return the columns of the matrix on a device."""
    columns = []
    for layer in (layer for layer in LAYERS if WHERE.get(layer, device) == device):
        single = [name for name, each in ALL.items() if device in each.devices] if layer in ("repeat", "copies") else []
        columns += [Cell(layer, name) for name in (NONE, *single, EVERYTHING)] if single else [Cell(layer)]
    return columns


def case_for(impl: Implementation, device: str, sizes: tuple[int, int, int] | None = None) -> Case:
    """Return a case with the features that an implementation supports, except GQA and scales."""
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
    """Return (verdict, details) of a cell.

    The verdict is fail with "7: headline" (after 7 repeats, launches of copies, or cases), or
    "raises: headline" if the call raises, which every law notices. Otherwise it is pass, or refused
    or unknown with the reason.

    origin: how another process finds the implementation. known: facts that this process keeps
    between two cells.
    """
    impl = replace(impl, share=1.0)  # fewer repeats would distort the measurement
    case = case_for(impl, device, SANITIZED if cell.layer == "sanitizer" else None)
    if refusal := unsupported(impl, case):
        return REFUSED, str(refusal)
    law = laws()[LAYERS[cell.layer]]
    perturbations = "" if cell.perturbation == EVERYTHING else cell.perturbation
    plan = Plan(
        device, seed=seed, perturbations=perturbations, origin=origin, alone=alone.command, known=known or Known()
    )

    def attempt(n: int, at: Case) -> LawBroken | None:
        """Return the failure of a case in n repeats, if any."""
        try:
            law.hold(replace(plan, repeats=n).trial(impl, at))
        except LawBroken as broken:
            if broken.__cause__ is not None and is_not_compiled(broken.__cause__):
                raise Undecided(broken.headline) from broken
            return broken
        return None

    try:
        for number, broken in _tries(cell, case.but(seed=seed), repeats, attempt):
            if broken is not None:
                return FAIL, f"{RAISES if isinstance(broken, Raises) else number}: {broken.headline}"
    except AnotherCase:
        return REFUSED, f"the law says nothing about {case}"
    except Undecided as undecided:
        return UNKNOWN, str(undecided)
    return PASS, ""


def _tries(
    cell: Cell, case: Case, repeats: int, attempt: Callable[[int, Case], LawBroken | None]
) -> Iterator[tuple[int, LawBroken | None]]:
    """Yield (amount so far, failure or None), either for more and more repeats of a case, or for
    one case after another.
    """
    if cell.layer not in ("repeat", "copies"):
        few = 1 if cell.layer == "sanitizer" else CASES
        yield from ((n + 1, attempt(repeats, case.but(seed=case.seed + n))) for n in range(few))
        return
    each = A_LAUNCH if cell.layer == "copies" else 1
    most = max(LADDER[0], repeats // each)
    # If even the highest number of repeats finds nothing, smaller numbers would waste time.
    if broken := attempt(most * each, case):
        yield from ((n, attempt(n * each, case)) for n in LADDER if n < most)
        yield most, broken
