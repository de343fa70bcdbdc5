"""Suggests the known name that a misspelt one is closest to, for a message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

SIMILAR = 0.6  # of difflib's ratio, from 0 to 1
SHORTEST = 4  # letters of a name that may stand for the longer one that it is a part of


def closest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most like `name`, or the only one that it is a part of; "" if there is none."""
    known = list(known)
    if similar := difflib.get_close_matches(name, known, 1, SIMILAR):
        return similar[0]
    longer = [each for each in known if name in each] if len(name) >= SHORTEST else []
    return longer[0] if len(longer) == 1 else ""


def did_you_mean(names: str | Iterable[str], known: Iterable[str]) -> str:
    """Return "; did you mean triton_fa2?" for one or more misspelt names, or "" if nothing is similar."""
    known = list(known)
    found = dict.fromkeys(closest(name, known) for name in ([names] if isinstance(names, str) else names))
    return f"; did you mean {' and '.join(filter(None, found))}?" if any(found) else ""
