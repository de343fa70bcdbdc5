"""Implements --shard i/n: the i-th of n parts of a run.

Parts are disjoint, together they are the run, and each takes about as long.

All tests of implementations form one line, sorted by implementation, which is cut into n pieces of
equal weight. So only a few parts compile the kernels of one implementation: at most n - 1
implementations are cut. A test weighs the share of cases that its law draws. All implementations
weigh the same, because slow ones declare a smaller share of cases. A checksum of their names mixes
the laws of an implementation, as laws of one chapter take similarly long. Nothing measured is used,
so every machine cuts in the same way.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence

import pytest

from flash_attest.impls.contract.record import Implementation
from flash_attest.properties.cases.support import missing, not_here
from flash_attest.properties.law import Law
from flash_attest.runner.parts import Shard
from flash_attest.runner.plugin.order import judges
from flash_attest.runner.untrusted.caller import caller_of

# The weight of a test that launches nothing: its law is refused, or its implementation does not run
# here.
NOTHING = 0.01


def weight(law: Law | None, impl: object, device: str) -> float:
    """Return how long a test takes, relative to a law that draws all cases.

    law: None for the contract check.
    """
    if not isinstance(impl, Implementation) or not_here(impl, (law and law.device) or device):
        return NOTHING
    if law is None:
        return 1.0
    caller = caller_of(impl)
    lacks = missing(
        impl, law.needs, same_process=caller.same_process, sees_memory=caller.sees_memory(law.device or device)
    )
    if law.device == "cuda" != device or lacks:
        return NOTHING
    return law.share


def cut(weights: Sequence[float], n: int) -> list[int]:
    """Return the number of the part, 1 to n, for each element of a list of weights.

    The n pieces have about equal weight. No piece is empty if there are at least n elements.
    """
    parts: list[int] = []
    whole, before, last = sum(weights), 0.0, 0
    filled = min(n, len(weights))
    for position, own in enumerate(weights):
        by_weight = 1 + min(n - 1, int(n * (before + own / 2) / whole))
        last = max(min(by_weight, last + 1), filled - (len(weights) - position) + 1, 1)
        parts.append(last)
        before += own
    return parts


def split(items: list[pytest.Item], shard: Shard, device: str) -> tuple[list[pytest.Item], list[pytest.Item], dict]:
    """Split items into the items of this part in their order, the other items, and facts for the
    report.

    Tests that judge no implementation, such as the suite's own, stay in every part.
    """
    line = sorted(filter(judges, items), key=_sort_key)
    weights = [weight(getattr(item.function, "law", None), item.callspec.params["impl"], device) for item in line]
    elsewhere = {item for item, part in zip(line, cut(weights, shard.of), strict=True) if part != shard.part}
    names = "\n".join(f"{item.originalname}[{item.callspec.id}]" for item in line)
    facts = {
        "part": shard.part,
        "of": shard.of,
        "tests": len(line) - len(elsewhere),
        "tests_of_all": len(line),
        "digest_of_all": hashlib.sha256(names.encode()).hexdigest()[:16],  # equal in all parts of a run
    }
    return [i for i in items if i not in elsewhere], [i for i in items if i in elsewhere], facts


def _sort_key(item: pytest.Item) -> tuple[str, int, str]:
    """Return implementation, checksum, law: a key that does not depend on the start folder or on
    other plug-ins.
    """
    return item.callspec.id, zlib.crc32(item.originalname.encode()), item.originalname
