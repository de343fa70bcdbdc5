"""Suggests the known name that is closest to a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

SIMILAR = 0.6  # the smallest ratio of difflib (0 to 1) that counts as similar
SHORTEST = 4  # letters that a word needs to match a longer name that contains it


def closest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most similar to `name`, or else the only one that contains it,
    or "".
    """
    known = list(known)
    bare = {each.lstrip("-"): each for each in known}  # all options begin alike, which makes none similar
    if similar := difflib.get_close_matches(name.lstrip("-"), bare, 1, SIMILAR):
        return bare[similar[0]]
    longer = [each for each in known if name in each] if len(name) >= SHORTEST else []
    return longer[0] if len(longer) == 1 else ""


def did_you_mean(names: str | Iterable[str], known: Iterable[str]) -> str:
    """Return "; did you mean triton_fa2?" for misspelt names, or "" if nothing is similar."""
    known = list(known)
    suggestions = dict.fromkeys(closest(name, known) for name in ([names] if isinstance(names, str) else names))
    return f"; did you mean {' and '.join(filter(None, suggestions))}?" if any(suggestions) else ""
