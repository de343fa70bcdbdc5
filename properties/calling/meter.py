"""What one law on one implementation cost: cases, seconds, repeats, and how near it came to the limits."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field

from flash_attest.properties.cases.case import Case
from flash_attest.properties.machine.clock import Clock

MOST_LOOKS = 5  # cases of which a law can say nothing, after which no further one is looked at


@dataclass
class Meter:
    """What one law on one implementation cost, and how close it came to the limits."""

    cases: int = 0
    clock: Clock = field(default_factory=Clock)
    worst_z: dict[str, float] = field(default_factory=dict)
    # Of each judged case: seqlen_q, seqlen_k, headdim, and its worst z (None if nothing was measured).
    tried: list[tuple[int, int, int, float | None]] = field(default_factory=list)
    z_of_case: float | None = None
    repeats: int = 0
    launches: int = 0  # traced ones, or those whose equal heads were compared
    under: set[str] = field(default_factory=set)  # the perturbations that were active in some repeat
    p: float = 0.0  # the bound of the case with the fewest tries, none of which showed anything
    kernels: set[str] = field(default_factory=set)  # those that a sanitizer watched
    clean: dict[Case, list[str]] = field(default_factory=dict)  # cases watched together with others: their kernels
    looks: int = 0  # cases of which the law can say nothing, though their calls were made (MOST_LOOKS)
    refusals: int = 0  # calls that raised, in a law that allows it
    note: str = ""  # what the law says beside its verdict: "none in 300 repeats, p < 1 %"

    def counted(self) -> dict[str, object]:
        """What is counted so far, without the time."""
        return {name: copy(value) for name, value in vars(self).items() if name != "clock"}

    def forget_since(self, counted: dict[str, object]) -> None:
        """Count only what was counted then: the case since then is begun anew, or undecided."""
        vars(self).update(counted)

    def saw(self, name: str, z: float) -> None:
        """Remember the worst z of a tensor, of the law and of the case in progress."""
        self.worst_z[name] = max(z, self.worst_z.get(name, 0.0))
        self.z_of_case = max(z, self.z_of_case or 0.0)

    def begins(self) -> None:
        """Start a case."""
        self.z_of_case = None

    def judged(self, case: Case) -> None:
        """Count a case that the law has judged."""
        self.cases += 1
        self.tried.append((case.seqlen_q, case.seqlen_k, case.headdim, self.z_of_case))

    def add(self, other: Meter) -> None:
        """Count the cases of another search, too."""
        self.cases += other.cases
        self.tried += other.tried
