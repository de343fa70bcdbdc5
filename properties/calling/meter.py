"""The cost of judging a law on an implementation: cases, seconds, repeats, largest errors."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flash_attest.properties.cases.case import Case
from flash_attest.properties.machine.clock import Clock

if TYPE_CHECKING:
    from flash_attest.properties.failures import Undecided

MOST_LOOKS = 5  # a law that says nothing about this many cases is given no more

# seqlen_q, seqlen_k, headdim, worst z (None if not measured)
Tried = tuple[int, int, int, float | None]


@dataclass
class Meter:
    """The cost of judging one law on one implementation, and the largest errors."""

    cases: int = 0
    clock: Clock = field(default_factory=Clock)
    worst_z: dict[str, float] = field(default_factory=dict)
    tried: list[Tried] = field(default_factory=list)  # the judged cases
    z_of_case: float | None = None
    repeats: int = 0
    launches: int = 0  # traced launches, or launches whose equal heads were compared
    traced: list[Case] = field(default_factory=list)  # the cases in which no race was found
    under: set[str] = field(default_factory=set)  # the perturbations that were active in some repeat
    p: float = 0.0  # the bound on the probability of a difference, for the case with the fewest repeats
    kernels: set[str] = field(default_factory=set)  # the kernels that a sanitizer watched
    unordered: str = ""  # which of these use what racecheck does not know
    copied: set[str] = field(default_factory=set)  # lines where threads of a Triton kernel store copies of a value
    clean: dict[Case, list[str]] = field(default_factory=dict)  # cases watched together with others -> their kernels
    beyond: Undecided | None = None  # why no sanitizer can judge the kernels
    looks: int = 0  # cases that were called, but about which the law says nothing (MOST_LOOKS)
    depends_on_others: bool = False  # whether a call was wrong only because of earlier ones (checks/among_others.py)
    kept_bits: int = 0  # cases in which other calls changed no bit, although that is not promised
    refusals: int = 0  # calls that raised, in a law that allows it
    note: str = ""  # printed beside the verdict: "none in 300 repeats, p < 1 %"

    def counted(self) -> dict[str, object]:
        """Return everything counted so far, without the time."""
        return {name: copy(value) for name, value in vars(self).items() if name != "clock"}

    def forget_since(self, counted: dict[str, object]) -> None:
        """Restore these earlier counts, as the case since then is restarted or undecided."""
        vars(self).update(counted)

    def saw(self, name: str, z: float) -> None:
        """Record the z of a tensor. The largest z of the law, and of the case, is kept."""
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
        """Add the counts of another search."""
        self.cases += other.cases
        self.tried += other.tried
