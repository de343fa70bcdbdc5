"""Kernels of TMA, mbarriers or wgmma, in which compute-sanitizer cannot judge races and waits.

racecheck does not know the order that the asynchronous proxy gives to accesses, and synccheck not
that a cp.async may arrive at an mbarrier. In kernels of producers and consumers it also misses
those that have arrived at a barrier and ended. So right kernels are reported, too
(docs/why/races.md#sanitizer).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import torch

from flash_attest.properties.failures import Reason
from flash_attest.races.sanitizer.machine_code import ARRIVAL, MachineCode

FIRST = (9, 0)  # the first compute capability with TMA and wgmma
ORDER = "racecheck does not know the order that TMA, mbarriers and wgmma give to accesses"
TWICE = "synccheck takes a cp.async that arrives at an mbarrier for a second arrival of its thread"
ENDED = "synccheck misses threads that have arrived at a named barrier, without waiting, and have ended"


@dataclass(frozen=True)
class Asynchronous:
    """Says which of some kernels use the asynchronous proxy.

    uses: kernels that use the asynchronous proxy -> the instructions. unread: kernels whose machine
    code cannot be read -> why.
    """

    uses: dict[str, list[str]] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)

    @property
    def why(self) -> Reason:
        """The reason of a verdict that depends on races in these kernels."""
        return Reason.RESOURCES if self.unread else Reason.ASYNCHRONOUS

    @property
    def kernels(self) -> list[str]:
        """The kernels in which racecheck cannot judge, or may be unable to."""
        return sorted({*self.uses, *self.unread})

    @property
    def arrive(self) -> bool:
        """Whether threads of these kernels may arrive at a named barrier without waiting."""
        return bool(self.unread) or any(ARRIVAL in used for used in self.uses.values())

    def ordinary(self, kernels: Collection[str]) -> list[str]:
        """Return the other kernels that racecheck can watch without these."""
        return [kernel for kernel in kernels if not any(kernel in other for other in self.kernels)]

    def hidden(self, kernels: Collection[str]) -> Asynchronous:
        """Return this with the other kernels whose names are part of one of these as unread.

        compute-sanitizer filters by a part of the name, so it cannot watch them alone.
        """
        hidden = {*kernels} - {*self.kernels} - {*self.ordinary(kernels)}
        within = {kernel: next(other for other in self.kernels if kernel in other) for kernel in sorted(hidden)}
        why = {kernel: f"racecheck cannot watch it without {other}" for kernel, other in within.items()}
        return Asynchronous(self.uses, self.unread | why)

    def __str__(self) -> str:
        """Say which kernels they are: "fwd uses SYNCS, UTMALDG"."""
        parts = [f"{kernel} uses {', '.join(used)}" for kernel, used in self.uses.items()]
        return "; ".join([*parts, *(f"{kernel} may use them: {why}" for kernel, why in self.unread.items())])


def asynchronous_in(kernels: Collection[str], device: str) -> Asynchronous:
    """Return which of these kernels use the asynchronous proxy. No GPU before sm_90 has it."""
    capability = capability_of(device)
    if capability < FIRST:
        return Asynchronous()
    found = Asynchronous()
    with MachineCode(capability) as code:
        for kernel in sorted(kernels):
            try:
                if used := code.asynchronous(kernel):
                    found.uses[kernel] = used
            except LookupError as error:
                found.unread[kernel] = str(error)
    return found


def capability_of(device: str) -> tuple[int, int]:
    """Return the compute capability of the GPU in use; (0, 0) on a CPU."""
    return torch.cuda.get_device_capability() if device == "cuda" else (0, 0)
