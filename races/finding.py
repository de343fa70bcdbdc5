"""A finding of race detection: an observation, and the detector (Layer) that made it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from enum import Enum

from flash_attest.emulator.observation import Apart, Kind, Observation


class Layer(Enum):
    """The detector that made a finding."""

    TRACE = "trace"  # the emulator checked every access
    SANITIZER = "sanitizer"  # compute-sanitizer reported it on a GPU


@dataclass(frozen=True)
class Finding(Observation):
    """One finding, for all observations of the same kind, lines and tensor."""

    layer: Layer = Layer.TRACE

    @classmethod
    def of(cls, observation: Observation, layer: Layer = Layer.TRACE) -> Finding:
        return cls(**{f.name: getattr(observation, f.name) for f in fields(Observation)}, layer=layer)

    @property
    def key(self) -> tuple:
        """The identity of a finding in one case. Findings with equal keys are merged."""
        return self.layer, *self.what, self.tensor

    @property
    def what(self) -> tuple:
        """The identity of a finding across cases and tensors.

        The order of a race's two lines does not matter.
        """
        lines = tuple((site.file, site.line, "" if site.line else site.function) for site in self.sites)
        return self.kind, tuple(sorted(lines)) if self.kind is Kind.RACE else lines or self.headline

    @property
    def _what(self) -> str:
        if self.layer is Layer.SANITIZER and self.first and self.second:  # it does not say which access came first
            one, other = (side.what.value for side in self.sides)
            return f"{self.place}, {one} and {other}, no barrier between"
        return super()._what

    @property
    def keeps_values(self) -> bool:
        """True if a race cannot change a result, as all of its compared writes kept the value."""
        return self.kind is Kind.RACE and self.same_value is True

    @property
    def rank(self) -> tuple[bool, int]:
        """The sort key: first what may change a result, races of two blocks before those of two
        warps, and these before those of two lanes, which read as harmless.
        """
        return self.keeps_values, -(self.apart or Apart.BLOCKS)


def merge(findings: list[Finding], more: Iterable[Finding]) -> None:
    """Add `more` to `findings` in place. Findings with equal keys become one, and counts are added.

    The one that stays has the first rank: a write that kept the value does not hide a write at the
    same lines that changed it.
    """
    at = {finding.key: n for n, finding in enumerate(findings)}
    for finding in more:
        n = at.setdefault(finding.key, len(findings))
        if n == len(findings):
            findings.append(finding)
        else:
            one = min(findings[n], finding, key=lambda each: each.rank)
            findings[n] = replace(one, count=findings[n].count + finding.count)
