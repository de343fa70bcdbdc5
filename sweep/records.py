"""A run and a finding. Their fields are columns in the file of a sweep (schema.sql)."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from flash_attest.properties.judging.verdict import FAIL

# The `why` of a run that was launched twice and returned neither time. Other runs have a Reason
# (properties/failures.py).
DIED = "died"
# States of a run, then of a finding.
DRAWN, RUNNING, DONE = "drawn", "running", "done"
FOUND, IN_WORK, REPORTED = "found", "in work", "reported"
# Parts of a headline that come in either order: the two accesses of a race, and their lines.
ACCESSES = re.compile(r"(read|write|atomic|touch) (?:after|and) (read|write|atomic|touch)")
LINES = re.compile(r"(\S+:\d+) and (\S+:\d+)$")
# A number that is not the line of a file ("fa2.cu:40") and not part of a name ("block2").
NUMBER = re.compile(r"(?<![\w.:])[+-]?(\d[\d.]*(e[+-]?\d+)?|inf|nan)(?![\w])")
COUNTED = re.compile(r"(# (?:equal )?[a-z]+?)s?\b")  # "# calls", "# call"


@dataclass
class Run:
    """One law on one case of one implementation."""

    seed: int
    number: int
    session: str
    impl: str
    version: str
    layer: str
    law: str
    case_: str
    perturbations: str
    asked: int
    device: str
    state: str = DRAWN
    deaths: int = 0
    worker: str = ""
    started: str = ""
    seconds: float = 0.0
    repeats: int = 0
    verdict: str = ""
    why: str = ""
    reason: str = ""

    @property
    def failed(self) -> bool:
        """Whether the run found something."""
        return self.verdict == FAIL


@dataclass
class Finding:
    """A failure in its smallest form. There is one for all runs that found it."""

    impl: str
    version: str
    law: str
    layer: str
    key: str
    state: str
    seed: int
    number: int
    found: str
    headline: str
    case_: str
    perturbations: str
    asked: int
    device: str
    message: str
    replay: str
    worker: str = ""
    deaths: int = 0
    times: int = 1
    known: str = ""
    repeated: str = ""
    reduced: str = ""

    @property
    def place(self) -> tuple[str, str, str, str, str]:
        """The key of the finding. Runs with the same values found the same failure."""
        return self.impl, self.version, self.law, self.device, self.key


def key_of(headline: str) -> str:
    """Return a headline without the parts that change from case to case.

    These parts are numbers with their plurals, and the order of the accesses of a race. Line
    numbers of files stay.
    """
    for pair in (ACCESSES, LINES):
        headline = pair.sub(lambda match: " and ".join(sorted(match.groups())), headline)
    return COUNTED.sub(r"\1", NUMBER.sub("#", headline).replace(" differs ", " differ "))


def columns(record: type) -> tuple[str, ...]:
    """Return the columns of the record's table."""
    return tuple(field.name for field in fields(record))
