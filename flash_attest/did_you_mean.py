"""Suggests the known name that a misspelt one is closest to, for a message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

SIMILAR = 0.6  # of difflib's ratio, from 0 to 1


def closest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most like `name`, or "" if none is similar."""
    return next(iter(difflib.get_close_matches(name, list(known), 1, SIMILAR)), "")


def did_you_mean(names: str | Iterable[str], known: Iterable[str]) -> str:
    """Return "; did you mean triton_fa2?" for one or more misspelt names, or "" if nothing is similar."""
    known = list(known)
    found = dict.fromkeys(closest(name, known) for name in ([names] if isinstance(names, str) else names))
    return f"; did you mean {' and '.join(filter(None, found))}?" if any(found) else ""
