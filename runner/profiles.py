"""Profiles: how much a run judges. `--hypothesis-profile NAME` chooses one."""

# This imports nothing of torch, which takes seconds: conftest.py reads it for --help.

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """How many cases each law gets on each implementation, and how often test_races repeats a call.

    small: on a CPU the drawn cases are small (`Limits.on` in cases/strategies.py), so that nothing but compiling takes long.
    """

    cases: int
    repeats: int = 100
    # What repeats find on a CPU shows in few calls: memory that was never written, state that was kept and, in the emulator,
    # an order of threads that changes the result.
    repeats_on_cpu: int = 25
    small: bool = False

    def repeats_on(self, device: str) -> int:
        """How often a call is repeated on "cpu" or "cuda"."""
        return self.repeats_on_cpu if device == "cpu" else self.repeats


DEFAULT = "default"
PROFILES = {
    # Two cases: Hypothesis tries the simplest one first, then another.
    "smoke": Profile(cases=2, repeats=10, repeats_on_cpu=10, small=True),
    "quick": Profile(cases=12),
    "default": Profile(cases=60),
    "thorough": Profile(cases=400, repeats_on_cpu=100),
    "nightly": Profile(cases=4000, repeats_on_cpu=100),
}
