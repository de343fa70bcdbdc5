"""The time limits of a law and of a whole run.

By default there is none. Each call has a limit of its own (--case-timeout), and a law makes a known
number of calls, so every law ends. How long that takes depends on the machine, the profile, and on
whether kernels are emulated or compiled: no number of seconds would be right on all of them, and an
implementation that is right must never fail to pass because a machine is slow.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from flash_attest.texts import duration, exact_duration

NEVER = float("inf")


@dataclass(frozen=True)
class Deadline:
    """A moment, by time.monotonic, and whose limit ends there, in words."""

    at: float = NEVER
    words: str = ""


@dataclass(frozen=True)
class TimeLimits:
    """Limits in seconds; 0 for none. began: when the run began, by time.monotonic, which all
    processes of a machine share.
    """

    law: float = 0.0
    run: float = 0.0
    began: float = 0.0

    @property
    def of_run(self) -> Deadline:
        """The moment at which the run has to end."""
        if not self.run:
            return Deadline()
        return Deadline(self.began + self.run, f"the time limit of the run, {exact_duration(self.run)}, is over")

    def of_law(self) -> Deadline:
        """Return the moment by which a law that begins now has to be decided."""
        if self.law and (at := time.monotonic() + self.law) < self.of_run.at:
            return Deadline(at, f"the time limit of a law, {exact_duration(self.law)}, is over")
        return self.of_run

    @property
    def over(self) -> str:
        """The reason why nothing more is judged, or ""."""
        return f"not judged: {self.of_run.words}" if time.monotonic() > self.of_run.at else ""

    def near(self, left: float | None) -> str:
        """Return that the limit of the run is near, or "". left: seconds that the rest is expected
        to take, if that is known.
        """
        remaining = self.of_run.at - time.monotonic()
        if not self.run or (remaining > NEAR * self.run and (left is None or left < remaining)):
            return ""
        return f"the time limit ends the run in {duration(max(0.0, remaining))}"


NEAR = 0.2  # the share of the limit that is left when it is mentioned
NO_LIMITS, NO_DEADLINE = TimeLimits(), Deadline()
