"""Profiles: how much a run judges. `--hypothesis-profile NAME` chooses one."""

# conftest.py reads this for --help, so it must not import torch, which takes seconds.

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """The number of cases of each law on each implementation, and of repeats in test_races.

    small: draw small cases on a CPU (`Limits.on` in cases/limits.py), so that only compiling
    takes long.
    """

    cases: int
    repeats: int = 100
    # On a CPU, few calls are enough to detect unwritten memory, state kept between calls and, in
    # the emulator, a result that depends on the order of threads.
    repeats_on_cpu: int = 25
    small: bool = False

    def repeats_on(self, device: str) -> int:
        """Return how often a call is repeated on this device, "cpu" or "cuda"."""
        return self.repeats_on_cpu if device == "cpu" else self.repeats


DEFAULT = "default"
PROFILES = {
    "smoke": Profile(cases=2, repeats=10, repeats_on_cpu=10, small=True),
    "quick": Profile(cases=12),
    "default": Profile(cases=16),
    "thorough": Profile(cases=400, repeats_on_cpu=100),
    "nightly": Profile(cases=4000, repeats_on_cpu=100),
}
