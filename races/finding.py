"""What a layer of race detection found: an observation, and the layer that made it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from enum import Enum

from emulator.observation import Kind, Observation


class Layer(Enum):
    """How a finding was made."""

    TRACE = "trace"  # the emulator checked every access


@dataclass(frozen=True)
class Finding(Observation):
    """One finding, for all observations of the same kind, lines and tensor."""

    layer: Layer = Layer.TRACE

    @classmethod
    def of(cls, observation: Observation, layer: Layer = Layer.TRACE) -> Finding:
        return cls(**{f.name: getattr(observation, f.name) for f in fields(Observation)}, layer=layer)

    @property
    def key(self) -> tuple:
        """Findings with equal keys are one. The two lines of a race are one pair, whichever ran first."""
        lines = tuple((site.file, site.line) for site in self.sites)
        return self.layer, self.kind, self.tensor, tuple(sorted(lines)) if self.kind is Kind.RACE else lines


def merge(findings: list[Finding], more: Iterable[Finding]) -> None:
    """Add `more` to `findings`, in place: one for each kind, pair of lines and tensor, with the sum of the counts."""
    at = {finding.key: n for n, finding in enumerate(findings)}
    for finding in more:
        n = at.setdefault(finding.key, len(findings))
        if n == len(findings):
            findings.append(finding)
        else:
            findings[n] = replace(findings[n], count=findings[n].count + finding.count)
