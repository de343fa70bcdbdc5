"""Perturbation: a disturbance around one launch that does not affect a correct implementation."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch


@dataclass
class Setting:
    """The data of one launch for a perturbation.

    handed: the inputs of the launch, by name. A perturbation may replace them with equal ones at
    other addresses.
    nbytes: sizes that the implementation is likely to allocate.
    other: calls the implementation on other values, without waiting for it.
    large: whether switching at every access in the emulator would take seconds for this launch.

    Everything random in a perturbation depends on seed and repeat alone.
    """

    device: str
    repeat: int
    seed: int
    handed: dict[str, torch.Tensor] = field(default_factory=dict)
    nbytes: list[int] = field(default_factory=list)
    other: Callable[[], object] = lambda: None
    large: bool = False

    def random(self, word: str) -> random.Random:
        """Return a random generator for this launch. Each `word` gives independent numbers."""
        return random.Random(f"{self.seed} {self.repeat} {word}")


@dataclass(frozen=True)
class Perturbation:
    """A named disturbance.

    words: its effect, in one line.
    devices: the devices that have it.
    around: returns a context manager for one launch.
    emulated: whether it acts only on kernels that run in the emulator.
    slots: how many repeats of a round it gets (schedule.py).
    lacking: returns why it cannot run in this process; "" if it can.
    """

    name: str
    words: str
    around: Callable[[Setting], AbstractContextManager]
    devices: frozenset[str] = frozenset({"cuda"})
    emulated: bool = False
    slots: int = 1
    lacking: Callable[[], str] = lambda: ""

    def __repr__(self) -> str:
        return f"Perturbation({self.name})"

    def applied(self, setting: Setting) -> AbstractContextManager:
        """Return the context of one launch. Call the implementation with setting.handed inside."""
        return self.around(setting)
