"""The repeat layer: repeats a call with disturbances in between and compares each output bit for bit.

Kernels that run in the emulator are repeated in other orders of their threads and blocks, too, as no order is promised.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch

from emulator.runtime.watch import ordered
from races.bits import bits

SWITCH = 0.02  # the probability that another thread continues at an access


@dataclass
class Repeats:
    """The differences of n repeats of a call from its first result."""

    n: int
    # by output: the repeats in which some bit differed; how often each element differed; the largest difference, inf if a
    # NaN appeared or disappeared
    which: dict[str, list[int]] = field(default_factory=dict)
    elements: dict[str, torch.Tensor] = field(default_factory=dict)
    largest: dict[str, float] = field(default_factory=dict)

    @property
    def differing(self) -> dict[str, int]:
        """By output: in how many repeats it differed."""
        return {name: len(repeats) for name, repeats in self.which.items()}

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
    runs: dict[str, list[torch.Tensor]] = {name: [] for name in first}
    most = {name: torch.zeros((), dtype=torch.float64, device=t.device) for name, t in first.items()}
    for repeat in range(n):
        disturb(repeat)
        for name, tensor in call().items():
            differs = bits(tensor) != words[name]
            counts[name] += differs
            runs[name].append(differs.any())
            off = (tensor.double() - first[name].double()).abs().masked_fill(~differs, 0.0).nan_to_num(torch.inf)
            if off.numel():
                most[name] = torch.maximum(most[name], off.max())
    found = Repeats(n)
    for name in first:
        differ = torch.stack(runs[name]).tolist() if runs[name] else []
        if any(differ):
            found.which[name], found.elements[name] = [r for r, d in enumerate(differ) if d], counts[name]
            found.largest[name] = float(most[name])
    return found, first


def in_order(repeat: int) -> bool:
    """Whether a repeat runs threads and blocks in the order of the first call (see `order_of`)."""
    return repeat % 4 == 0


def order_of(repeat: int, seed: int) -> AbstractContextManager[None]:
    """The order of threads and blocks in a repeat: every fourth in order, the others by warp, switched, shuffled in turn."""
    if in_order(repeat):
        return nullcontext()
    by_warp, switch = repeat % 4 == 1, SWITCH if repeat % 4 == 2 else 0.0
    return ordered(1 + 1000 * seed + repeat, switch, by_warp)
