"""Verdicts, and the record of one law judged on one implementation."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from flash_attest.properties.calling.meter import Tried
from flash_attest.properties.failures import Reason
from flash_attest.properties.judging.plain_text import plain

PASS, FAIL, REFUSED, UNKNOWN = "pass", "fail", "refused", "unknown"
WORST_FIRST = (FAIL, UNKNOWN, PASS, REFUSED)  # what a chapter shows if its laws differ
PLAIN = "the plainest cases"  # the clue of a failure that needs nothing special
MOST_TRIED = 400  # cases of one law that results.json keeps one by one


def law_name(law: str) -> str:
    """Return a law's name as people read and write it: without the prefix of its test."""
    return law.removeprefix("test_")


@dataclass
class Result:
    """One entry of results.json: one implementation, one law."""

    impl: str
    chapter: str
    law: str
    verdict: str
    reason: str = ""  # why, in words
    why: Reason | None = None  # set for the verdicts refused and unknown, and for a file that cannot be loaded
    cases: int = 0
    seconds: float = 0.0
    seconds_of: dict[str, float] = field(default_factory=dict)  # kind of work (properties/machine/clock.py) -> seconds
    worst_z: dict[str, float] = field(default_factory=dict)
    message: str = ""
    replay: str = ""
    smallest: str = ""
    beside: str = ""  # of a failure: the result of the law without its clue
    beside_case: str = ""  # the smallest case of the other failure that `beside` names, if there is one
    observed: dict = field(default_factory=dict)  # with --untrusted: calls, and the operators of PyTorch that they used
    clue: str = ""  # of a failure: what its smallest case needs to fail, or PLAIN; "" if not looked for
    matches: list[str] = field(default_factory=list)  # of a failure: what the kernel computed instead
    same_as: str = ""  # of a failure: the law whose failure has the same cause and was explained before
    tried: list[Tried] = field(default_factory=list)  # the judged cases
    wrong: dict | None = None  # of a failure: where (properties/checks/wrong.py)
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
        record["tried"] = [[*sizes, None if z is None else _z(z)] for *sizes, z in thinned(self.tried)]
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


def thinned(tried: list[Tried]) -> list[Tried]:
    """Return all cases, or beyond MOST_TRIED only the worst of each range of sizes.

    A range goes from one power of two to the next, in the longer sequence and in headdim.
    """
    if len(tried) <= MOST_TRIED:
        return tried
    worst: dict[tuple[int, int], Tried] = {}
    for case in tried:
        seqlen_q, seqlen_k, headdim, z = case
        size = tuple(max(0, n - 1).bit_length() for n in (max(seqlen_q, seqlen_k), headdim))
        before = worst.setdefault(size, case)
        if z is not None and (before[3] is None or z > before[3]):
            worst[size] = case
    return list(worst.values())


def _z(z: float) -> float | str:
    return round(z, 3) if z < 1e300 else str(z)
