"""Tracing: launches inside `tracing()` run in the emulator, which checks every access.

It works alike for all kernel families.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from flash_attest.emulator.observation import Observation
from flash_attest.emulator.runtime.watch import LIMIT, watching
from flash_attest.races.finding import Finding, merge

# The most products q k of a traced case of attention that is drawn, and of one that is chosen by
# hand or fails a law. 2^20 take about 0.2 s forward.
MOST_PRODUCTS, MOST_CHOSEN = 2**20, 5 * 2**20


@dataclass
class Tracing:
    """The findings, one for each kind, lines and tensor, and finally the number of launches.

    unwritten: reads of memory from torch.empty that nothing had written. They are right if no
    result depends on them, so they are no findings by themselves.
    """

    findings: list[Finding] = field(default_factory=list)
    unwritten: list[Finding] = field(default_factory=list)
    launches: int = 0

    def add(self, observations: list[Observation]) -> None:
        found = [Finding.of(observation) for observation in observations]
        merge(self.findings, (finding for finding in found if not finding.is_of_fresh_tensor))
        merge(self.unwritten, (finding for finding in found if finding.is_of_fresh_tensor))


@contextmanager
def tracing(seed: int = 0, switch: float = 0.0, limit: float = LIMIT) -> Iterator[Tracing]:
    """Trace every launch that runs in the emulator inside this block.

    seed: 0 runs threads and blocks in order, any other value in a random order.
    switch: the probability of switching to another thread at an access, to show how a race can
    change the result.
    limit: seconds of CPU time for one launch.

    Mistakes are reported as findings, not as exceptions.
    """
    if not 0.0 <= switch <= 1.0:
        raise ValueError(f"switch={switch!r}: should be a probability, from 0 to 1")
    if not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise ValueError(f"seed={seed!r}: should be an int from 0 to 2**64 - 1")
    if not (isinstance(limit, (int, float)) and 0 < limit < 1e6):
        raise ValueError(f"limit={limit!r}: should be seconds, above 0")
    result = Tracing()
    with watching(result.add, seed, switch, limit) as watch:
        try:
            yield result
        finally:
            result.launches = watch.launches()


def trace(call: Callable[[], Any], seed: int = 0, switch: float = 0.0, limit: float = LIMIT) -> list[Finding]:
    """Trace call() and return all findings; [] means none for this input.

    The options are the same as those of `tracing`.

    If the call raises because of a finding (for example, it checks for errors), the findings are
    returned. Raises RuntimeError if no kernel ran, because that would prove nothing.
    """
    with tracing(seed, switch, limit) as result:
        try:
            call()
        except Exception:
            if not result.findings:
                raise
    if not result.launches and not result.findings:
        raise RuntimeError(
            "no traced kernel was launched (there was no launch in the emulator, or the host code checked for the error of a "
            "failed one): there was nothing to trace"
        )
    return result.findings
