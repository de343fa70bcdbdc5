"""The repeat layer: repeats a call with disturbances in between and compares each output bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from races.bits import bits


@dataclass
class Repeats:
    """The differences of n repeats of a call from its first result."""

    n: int
    # by output: in how many repeats some bit differed; how often each element differed; the largest difference, inf if a
    # NaN appeared or disappeared
    differing: dict[str, int] = field(default_factory=dict)
    elements: dict[str, torch.Tensor] = field(default_factory=dict)
    largest: dict[str, float] = field(default_factory=dict)

    @property
    def bound(self) -> float:
        """The 95 % upper bound on the probability of a difference, if there was none: 3 / n (the rule of three)."""
        return min(1.0, 3 / self.n) if self.n else 1.0


def compare_repeats(
    call: Callable[[], dict[str, torch.Tensor]], n: int, disturb: Callable[[int], None]
) -> tuple[Repeats, dict[str, torch.Tensor]]:
    """Call once, then n times, with disturb(repeat) before each: how often each output differed from the first result.

    The comparison stays on the device; counts are read back once, at the end.
    """
    first = {name: t.contiguous().clone() for name, t in call().items()}
    words = {name: bits(t) for name, t in first.items()}
    counts = {name: torch.zeros(t.shape, dtype=torch.int32, device=t.device) for name, t in first.items()}
    runs = {name: torch.zeros((), dtype=torch.int32, device=t.device) for name, t in first.items()}
    most = {name: torch.zeros((), dtype=torch.float64, device=t.device) for name, t in first.items()}
    for repeat in range(n):
        disturb(repeat)
        for name, tensor in call().items():
            differs = bits(tensor) != words[name]
            counts[name] += differs
            runs[name] += differs.any()
            off = (tensor.double() - first[name].double()).abs().masked_fill(~differs, 0.0).nan_to_num(torch.inf)
            if off.numel():
                most[name] = torch.maximum(most[name], off.max())
    found = Repeats(n)
    for name in first:
        if times := int(runs[name]):
            found.differing[name], found.elements[name] = times, counts[name]
            found.largest[name] = float(most[name])
    return found, first
