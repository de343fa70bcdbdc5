"""The order of the laws.

pytest-xdist (--dist worksteal) cuts the list into one piece for each worker; who is done first takes from the others.
"""

from __future__ import annotations

from collections.abc import Collection

import pytest

# Packages with many kernels, each compiled when a case first needs it, by one worker, and kept on disk for all.
COMPILED_ONE_BY_ONE = ("impls.triton", "impls.numba")


def compiled_one_by_one(impl: object) -> bool:
    """Whether several workers compile for an implementation without doing the same twice."""
    return getattr(getattr(impl, "forward", None), "__module__", "").startswith(COMPILED_ONE_BY_ONE)


def judges(item: pytest.Item) -> bool:
    """Whether it judges an implementation: a law, or the contract check."""
    return "judge" in getattr(item, "fixturenames", ())


def by_implementation(
    items: list[pytest.Item], names: list[str], shared: Collection[str] = (), workers: int = 1
) -> list[pytest.Item]:
    """Items in their order -> laws of one implementation follow each other, implementations in the order of `names`.

    One worker compiles what an implementation needs, while others judge other implementations. In the order of the laws, all
    workers would wait for the same compiler. Laws that may end the process come last (`Law.last`).

    shared: the implementations with which every worker's piece begins, so that all of them compile their kernels.
    """
    place = {name: n for n, name in enumerate(names)}

    def key(item: pytest.Item) -> tuple[int, bool]:
        law = getattr(item.function, "law", None) if judges(item) else None
        return place[item.callspec.id] if judges(item) else -1, law is not None and law.last

    ordered = sorted(items, key=key)
    first = [item for item in ordered if judges(item) and item.callspec.id in shared]
    rest = [item for item in ordered if not (judges(item) and item.callspec.id in shared)]
    if not rest or workers == 1:
        return ordered
    made: list[pytest.Item] = []
    for worker in range(workers):
        made += first[worker::workers] + rest[len(rest) * worker // workers : len(rest) * (worker + 1) // workers]
    return made
