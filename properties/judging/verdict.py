"""Verdicts, and the record of one law judged on one implementation."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.plain_text import plain

PASS, FAIL, REFUSED, UNKNOWN = "pass", "fail", "refused", "unknown"
WORST_FIRST = (FAIL, UNKNOWN, PASS, REFUSED)  # the verdict of a chapter is the first of these among its laws
PLAIN = "the plainest cases"  # the clue of a failure that even the plainest cases show


@dataclass
class Result:
    """One entry of results.json: one implementation, one law."""

    impl: str
    chapter: str
    law: str
    verdict: str
    reason: str = ""  # why, in words
    why: Reason | None = None  # set for the verdicts refused and unknown
    cases: int = 0
    seconds: float = 0.0
    seconds_of: dict[str, float] = field(default_factory=dict)  # kind of work (properties/machine/clock.py) -> seconds
    worst_z: dict[str, float] = field(default_factory=dict)
    message: str = ""
    replay: str = ""
    smallest: str = ""
    beside: str = ""  # for a failure: the result of the law without its clues
    observed: dict = field(default_factory=dict)  # with --untrusted: calls, and the PyTorch operators that they used
    clue: str = ""  # for a failure: the clues in its smallest case, or PLAIN; "" if none were looked for
    # For each judged case: seqlen_q, seqlen_k, headdim, and its worst z (None if not measured).
    tried: list[tuple[int, int, int, float | None]] = field(default_factory=list)
    wrong: dict | None = None  # for a failure: the wrong positions (properties/checks/wrong.py)
    declared_at: str = ""  # FILE:LINE of the implementation
    found_at: str = ""  # FILE:LINE of a finding in a kernel
    known: str = ""  # the reason in known_failures, if this failure is an expected one
    before: str = ""  # the start of the run that judged it, if a later run resumed it
    # For a failure: everything that is wrong. `reason` names only the first finding.
    findings: list[str] = field(default_factory=list)
    repeats: int = 0  # the number of calls, or traced launches, that were compared or checked for races

    def as_dict(self) -> dict:
        """Return a dict for JSON, in which an infinite or NaN z is a word."""
        record = asdict(self)
        record["why"] = self.why.value if self.why else ""
        record["seconds"] = round(self.seconds, 4)
        record["seconds_of"] = {work: round(seconds, 4) for work, seconds in self.seconds_of.items()}
        record["worst_z"] = {tensor: _z(z) for tensor, z in self.worst_z.items()}
        record["tried"] = [[*sizes, None if z is None else _z(z)] for *sizes, z in self.tried]
        return record

    @classmethod
    def of_dict(cls, record: dict) -> Result:
        """Make a Result of as_dict's dict. Raises TypeError or ValueError for other dicts."""
        z = {tensor: float(z) for tensor, z in record["worst_z"].items()}
        tried = [(*sizes, None if z is None else float(z)) for *sizes, z in record["tried"]]
        why = Reason(record["why"]) if record["why"] else None
        return cls(**{**record, "why": why, "worst_z": z, "tried": tried})

    def made_plain(self) -> None:
        """Escape characters that terminals or files do not take (plain_text.py).

        An implementation may have written the text.
        """
        for name in ("reason", "message", "replay", "beside", "known"):
            setattr(self, name, plain(getattr(self, name)))
        self.findings = [plain(finding) for finding in self.findings]


def _z(z: float) -> float | str:
    return round(z, 3) if z < 1e300 else str(z)
