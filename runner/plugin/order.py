"""Orders the laws.

pytest-xdist (--dist worksteal) cuts the list into one piece for each worker. A worker that has
finished takes tests from the others.
"""

from __future__ import annotations

import pytest


def judges(item: pytest.Item) -> bool:
    """Return whether an item judges an implementation: a law, or the contract check."""
    return "judge" in getattr(item, "fixturenames", ())


def by_implementation(items: list[pytest.Item], names: list[str]) -> list[pytest.Item]:
    """Sort items by implementation, in the order of `names`; the order of laws is kept.

    One worker compiles what an implementation needs while others judge other implementations. If
    items stayed in the order of the laws, all workers would wait for the same compiler. Laws that
    may end the process come last (`Law.last`). Before them come laws that are always judged on the
    CPU, because a run on a GPU needs a second process of a plug-in for them.
    """
    position = {name: n for n, name in enumerate(names)}

    def key(item: pytest.Item) -> tuple[int, bool, bool]:
        if not judges(item):
            return -1, False, False
        law, n = getattr(item.function, "law", None), position[item.callspec.id]  # the contract check has no law
        return (n, law.last, law.device == "cpu") if law else (n, False, False)

    return sorted(items, key=key)
