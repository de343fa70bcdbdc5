"""What a perturbation is: a disturbance around one launch that a correct implementation does not notice."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import torch


@dataclass
class Setting:
    """One launch, as a perturbation sees it.

    handed: the inputs that the launch will get, by name. A perturbation may replace them by equal ones that lie elsewhere.
    nbytes: sizes that the implementation is likely to allocate. other: calls it on other values, without waiting for it.
    large: a launch under the emulator that looks at every access would take seconds.
    Whatever is random in a perturbation depends on seed and repeat alone.
    """

    device: str
    repeat: int
    seed: int
    handed: dict[str, torch.Tensor] = field(default_factory=dict)
    nbytes: list[int] = field(default_factory=list)
    other: Callable[[], object] = lambda: None
    large: bool = False

    def random(self, word: str) -> random.Random:
        """Random numbers of this launch; `word` keeps the perturbations apart."""
        return random.Random(f"{self.seed} {self.repeat} {word}")


@dataclass(frozen=True)
class Perturbation:
    """A disturbance, by name.

    words: what it does, in a line. devices: where there is such a thing. around: a context manager for one launch.
    emulated: it acts on kernels that run in the emulator only. slots: how many of a round's repeats are its own
    (schedule.py). lacking() -> what this process lacks for it; "" if nothing.
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
        """Around ONE launch of the implementation, which is to be called with setting.handed inside."""
        return self.around(setting)
