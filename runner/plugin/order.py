"""The order of the laws.

pytest-xdist (--dist worksteal) cuts the list into one piece for each worker; who is done first takes from the others.
"""

from __future__ import annotations

import pytest


def judges(item: pytest.Item) -> bool:
    """Whether it judges an implementation: a law, or the contract check."""
    return "judge" in getattr(item, "fixturenames", ())


def by_implementation(items: list[pytest.Item], names: list[str]) -> list[pytest.Item]:
    """Items in their order -> laws of one implementation follow each other, implementations in the order of `names`.

    One worker compiles what an implementation needs, while others judge other implementations. In the order of the laws, all
    workers would wait for the same compiler. Laws that may end the process come last (`Law.last`), and before them those that
    are always judged on the CPU: in a run on a GPU a plug-in gets another process for these.
    """
    place = {name: n for n, name in enumerate(names)}

    def key(item: pytest.Item) -> tuple[int, bool, bool]:
        if not judges(item):
            return -1, False, False
        law, here = getattr(item.function, "law", None), place[item.callspec.id]  # the contract check has no law
        return (here, law.last, law.device == "cpu") if law else (here, False, False)

    return sorted(items, key=key)
