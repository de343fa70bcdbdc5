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
    small: bool = False


DEFAULT = "default"
PROFILES = {
    "smoke": Profile(cases=2, repeats=10, small=True),  # Hypothesis tries the simplest case first: that one and another
    "quick": Profile(cases=12),
    "default": Profile(cases=60),
    "thorough": Profile(cases=400),
    "nightly": Profile(cases=4000),
}
