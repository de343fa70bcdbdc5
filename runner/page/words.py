"""Says how verdicts and numbers are written on a page.

Each verdict has a sign and a word, so nobody needs its colour to read it.
"""

from __future__ import annotations

import hashlib
import math
import re
from datetime import datetime
from typing import NamedTuple

from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN, law_name


class Verdict(NamedTuple):
    """A kind of verdict: its CSS class, its sign, and its words."""

    name: str
    sign: str
    word: str
    means: str


UNLOADED, KNOWN, ELSEWHERE = "unloaded", "known", "elsewhere"
# The worst first: the order in which a cell of several laws is coloured.
VERDICTS = {
    verdict.name: verdict
    for verdict in (
        Verdict(UNLOADED, "✗", "not loaded", "its file cannot be loaded, so no law is judged"),
        Verdict(FAIL, "✗", "fail", "did not hold"),
        Verdict(UNKNOWN, "?", "unknown", "could not be decided"),
        Verdict(KNOWN, "!", "known failure", "failed, as known_failures says it would"),
        Verdict(PASS, "✓", "pass", "held on every case"),
        Verdict(ELSEWHERE, "○", "not here", "needs another device, or something that this machine or its tools lack"),
        Verdict(REFUSED, "–", "refused", "does not apply: the implementation does not declare what the law needs"),
    )
}


def plural(count: int, noun: str, nouns: str = "") -> str:
    """ "1 law", "2 laws"."""
    return f"{count} {noun if count == 1 else nouns or noun + 's'}"


def chapter_name(chapter: str) -> str:
    """ "test_causal" -> "causal"."""
    return chapter.removeprefix("test_")


def number(value: object) -> float | None:
    """Read a z as results.json has it: a number, "inf", "nan", or None."""
    try:
        return None if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None


def z(value: object) -> str:
    """Write a z in a few letters: "0", "3.1", "1.2e5", "∞" or "nan"; "" if there is none."""
    read = number(value)
    if read is None:
        return ""
    if not math.isfinite(read):
        return "nan" if math.isnan(read) else "∞"
    if abs(read) < 1000:
        return f"{read:.2g}" if abs(read) < 100 else f"{read:.0f}"
    mantissa, exponent = f"{read:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def duration(seconds: float | None) -> str:
    """ "12 s", "4.1 min", "2.3 h"; "" if not known."""
    if seconds is None:
        return ""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def when(started: str) -> str:
    """ "2026-11-25T19:02:11+00:00" -> "2026-11-25 19:02 UTC"; anything else as it is."""
    try:
        moment = datetime.fromisoformat(started)
    except (TypeError, ValueError):
        return str(started)
    return f"{moment:%Y-%m-%d %H:%M} UTC" if moment.utcoffset() is not None else f"{moment:%Y-%m-%d %H:%M}"


def slug(*parts: str) -> str:
    """Return an id for use in an address, the same on each page: "laws.python_tiled.causal".

    Where a part has characters that an id or an address does not take, a digest keeps ids apart.
    """
    text = ".".join(parts)
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", text)
    return plain if plain == text else f"{plain}-{hashlib.sha256(text.encode('utf-8', 'replace')).hexdigest()[:8]}"


FILTERS = {
    "plural": plural, "law_name": law_name, "chapter_name": chapter_name, "z": z, "duration": duration, "when": when,
    "slug": slug,
}  # fmt: skip
