"""The repeat layer: launches a call again under perturbations and compares each output bit for bit with the first launch.

The first launch has no perturbation; which ones each repeat has is drawn from a seed (perturb/schedule.py). Nothing is read
back from the device before the last launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import torch

from flash_attest.races.compare import Comparison
from flash_attest.races.perturb import NONE, Perturbation, Setting, rounds

Tensors = dict[str, torch.Tensor]
ENOUGH = 3  # repeats that differ, before it is said what they have in common


def bound(n: int) -> float:
    """The 95 % upper bound on the probability of what was not seen in n tries: 3 / n (the rule of three)."""
    return min(1.0, 3 / n) if n else 1.0


@dataclass
class Repeats:
    """The differences of n repeats of a call from its first result."""

    n: int
    first: Tensors
    under: list[tuple[str, ...]] = field(default_factory=list)  # by repeat: the perturbations that it had
    # by output: the repeats in which some bit differed; how often each element differed; the largest difference, inf if a
    # NaN appeared or disappeared
    which: dict[str, list[int]] = field(default_factory=dict)
    elements: Tensors = field(default_factory=dict)
    largest: dict[str, float] = field(default_factory=dict)
    between: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(
        default_factory=dict
    )  # the least, and the largest values

    @property
    def differing(self) -> dict[str, int]:
        """By output: in how many repeats it differed."""
        return {name: len(repeats) for name, repeats in self.which.items()}

    def only_under(self, name: str) -> list[str]:
        """The perturbations without which an output never differed, although there were such repeats.

        Nothing where few repeats differed: a perturbation that they have in common means little.
        """
        differing, found = set(self.which.get(name, ())), []
        if len(differing) < ENOUGH:
            return found
        for each in dict.fromkeys(each for had in self.under for each in had):
            without = {repeat for repeat, had in enumerate(self.under) if each not in had}
            if without and not differing & without:
                found.append(each)
        return found

    def by_perturbation(self, name: str) -> list[tuple[str, int, int, int, int]]:
        """(perturbation, differing and all repeats with it alone, the same with others beside it) for an output."""
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
    """Launch once, then n times under perturbations: how often each output differed from the first result.

    launch(inputs by name) -> outputs by name; the inputs are setting.handed, or equal ones that lie elsewhere. inexact:
    whether an output may differ, so that its least and largest values are kept as `between`.
    """
    setting = setting or Setting("cpu", 0, 0)
    comparison = Comparison(launch(setting.handed), n)
    found = Repeats(n, comparison.first)
    found.between = {name: (t.clone(), t.clone()) for name, t in comparison.first.items() if inexact(name)}
    for repeat, active in zip(range(n), rounds(perturbations, setting.seed), strict=False):
        here = replace(setting, repeat=repeat, handed=dict(setting.handed))
        with ExitStack() as around:
            for each in active:
                around.enter_context(each.applied(here))
            results = launch(here.handed)
        found.under.append(tuple(each.name for each in active))
        comparison.see(repeat, results)
        for name, (least, most) in found.between.items():
            torch.minimum(least, results[name], out=least)
            torch.maximum(most, results[name], out=most)
    found.which = comparison.which()
    for name in found.which:
        found.elements[name], found.largest[name] = comparison.elements(name), comparison.largest(name)
    return found
