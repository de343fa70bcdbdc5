"""Race detection by repeats: repeats a launch under perturbations, and compares with the first.

The first launch has no perturbation. A seed decides which ones each repeat has
(perturb/schedule.py). Outputs are compared bit for bit, and nothing is read back from the device
before the last launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import torch

from flash_attest.races.compare import Comparison
from flash_attest.races.perturb import NONE, Perturbation, Setting, rounds

Tensors = dict[str, torch.Tensor]
ENOUGH = 3  # with fewer differing repeats, a common perturbation means little


def bound(n: int) -> float:
    """Return 3 / n, the 95 % upper bound on the probability of an event that n tries did not show.

    This is the rule of three.
    """
    return min(1.0, 3 / n) if n else 1.0


@dataclass
class Repeats:
    """The differences between n repeats of a call and its first result."""

    n: int
    first: Tensors
    under: list[tuple[str, ...]] = field(default_factory=list)  # the perturbations of each repeat
    # For each output: which repeats differed in some bit; how often each element differed; the
    # largest difference, inf if a NaN appeared or disappeared; and the smallest and largest values.
    which: dict[str, list[int]] = field(default_factory=dict)
    elements: Tensors = field(default_factory=dict)
    largest: dict[str, float] = field(default_factory=dict)
    between: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    @property
    def differing(self) -> dict[str, int]:
        """The number of repeats that differed, by output."""
        return {name: len(repeats) for name, repeats in self.which.items()}

    def only_under(self, name: str) -> list[str]:
        """Return the perturbations that all differing repeats had, but not all other repeats.

        Returns none if few repeats differed, as a common perturbation then means little.
        """
        differing, necessary = set(self.which.get(name, ())), []
        if len(differing) < ENOUGH:
            return necessary
        for each in dict.fromkeys(each for had in self.under for each in had):
            without = {repeat for repeat, had in enumerate(self.under) if each not in had}
            if without and not differing & without:
                necessary.append(each)
        return necessary

    def by_perturbation(self, name: str) -> list[tuple[str, int, int, int, int]]:
        """Return rows (perturbation, n, of, n, of) for an output: n of `of` repeats differed.

        The first pair counts repeats with only this perturbation, the second repeats with others,
        too.
        """
        differing, rows = set(self.which.get(name, ())), []
        for each in dict.fromkeys((NONE, *(each for had in self.under for each in had))):
            alone = [r for r, had in enumerate(self.under) if had == (() if each == NONE else (each,))]
            beside = [r for r, had in enumerate(self.under) if each in had and len(had) > 1]
            counts = [number for repeats in (alone, beside) for number in (len(differing & {*repeats}), len(repeats))]
            rows.append((each, *counts))
        return rows


def compare_repeats(
    launch: Callable[[Tensors], Tensors],
    n: int,
    perturbations: Sequence[Perturbation] = (),
    setting: Setting | None = None,
    inexact: Callable[[str], bool] = lambda name: False,
) -> Repeats:
    """Launch once, then n times under perturbations; return the differences from the first.

    launch: inputs by name -> outputs by name. The inputs are setting.handed, or equal ones at other
    addresses. inexact(name): whether an output may differ. Its smallest and largest values are then
    kept in `between`.
    """
    setting = setting or Setting("cpu", 0, 0)
    comparison = Comparison(launch(setting.handed), n)
    result = Repeats(n, comparison.first)
    result.between = {name: (t.clone(), t.clone()) for name, t in comparison.first.items() if inexact(name)}
    for repeat, active in zip(range(n), rounds(perturbations, setting.seed), strict=False):
        here = replace(setting, repeat=repeat, handed=dict(setting.handed))
        with ExitStack() as around:
            for each in active:
                around.enter_context(each.applied(here))
            results = launch(here.handed)
        result.under.append(tuple(each.name for each in active))
        comparison.see(repeat, results)
        for name, (least, most) in result.between.items():
            torch.minimum(least, results[name], out=least)
            torch.maximum(most, results[name], out=most)
    result.which = comparison.which()
    for name in result.which:
        result.elements[name], result.largest[name] = comparison.elements(name), comparison.largest(name)
    return result
