"""The order of the laws, so that workers neither wait for one compiler nor compile the same kernel at once.

pytest-xdist (--dist worksteal) cuts the list into one piece for each worker; who is done first takes from the others.
"""

from __future__ import annotations

import pytest


def judges(item: pytest.Item) -> bool:
    """Whether it judges an implementation: a law, or the contract check."""
    return "judge" in getattr(item, "fixturenames", ())


def ordered(items: list[pytest.Item], names: list[str], workers: int, device: str) -> list[pytest.Item]:
    """Items in their order -> the order of judging. names: of the implementations, in the order of the report.

    On a CPU laws of one implementation follow each other: what has to be compiled is compiled by one worker. On a GPU the
    kernels of one implementation (Triton's, several hundred) take minutes to compile, so each worker judges a part of the
    laws on all implementations, and begins with another one.
    """
    laws, others = [item for item in items if judges(item)], [item for item in items if not judges(item)]
    pieces = workers if device == "cuda" else 1
    place = {name: n for n, name in enumerate(names)}
    made = []
    for piece in range(pieces):
        first, size = piece * len(names) // pieces, (len(laws) - len(made)) // (pieces - piece)
        own = laws[len(made) : len(made) + size]
        made += sorted(own, key=lambda item, first=first: (place[item.callspec.id] - first) % len(names))
    return others + made
