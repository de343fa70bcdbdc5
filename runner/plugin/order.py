"""Orders the laws.

pytest-xdist (--dist worksteal) cuts the list into one piece for each worker. A worker that has
finished takes tests from the others.
"""

from __future__ import annotations

import pytest

from flash_attest.properties.judging.explained import place_of


def judges(item: pytest.Item) -> bool:
    """Return whether an item judges an implementation: a law, or the contract check."""
    return "judge" in getattr(item, "fixturenames", ())


def by_implementation(items: list[pytest.Item], names: list[str], workers: int = 1) -> list[pytest.Item]:
    """Sort items by implementation, in the order of `names`. Laws that describe a mistake best come
    first, as others then need not explain it again (properties/judging/repeats.py).

    One worker compiles what an implementation needs while others judge other implementations. If
    items stayed in the order of the laws, all workers would wait for the same compiler. Laws that
    may end the process come last (`Law.last`). Before them come laws that are always judged on the
    CPU, because a run on a GPU needs a second process of a plug-in for them. workers: how many take
    a piece; if there is one implementation, each piece begins with laws that describe best.
    """
    position = {name: n for n, name in enumerate(names)}

    def key(item: pytest.Item) -> tuple[int, bool, bool, int]:
        if not judges(item):
            return -1, False, False, 0
        law, n = getattr(item.function, "law", None), position[item.callspec.id]  # the contract check has no law
        return (n, law.last, law.device == "cpu", place_of(law.chapter)) if law else (n, False, False, 0)

    ordered = sorted(items, key=key)
    if len(names) > 1:
        return ordered
    first = [item for item in ordered if key(item)[1:3] == (False, False)]
    pieces = [item for start in range(workers) for item in first[start::workers]]
    return pieces + ordered[len(first) :]
