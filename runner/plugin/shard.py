"""--shard i/n: the i-th of n parts of a run. The parts are disjoint, together they are the run, and each takes about as long.

All tests of implementations are put in a line, by implementation, and the line is cut into n pieces of equal weight. So an
implementation, whose kernels have to be compiled, is in few parts: n - 1 cuts fall into n - 1 implementations at most. A test
weighs the share of the cases that its law draws; implementations weigh the same, because those that are slow declare a share
that makes up for it. The laws of an implementation are mixed by a checksum of their names, as those of one chapter take
similarly long. Nothing measured is used, so every machine cuts at the same places.
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

# The weight of a test that launches nothing, as its law is refused or its implementation does not run here.
NOTHING = 0.01


def weight(law: Law | None, impl: object, device: str) -> float:
    """How long a test takes, compared with one of a law that draws all cases. No law: the contract check."""
    if not isinstance(impl, Implementation) or not_here(impl, (law and law.device) or device):
        return NOTHING
    if law is None:
        return 1.0
    if law.device == "cuda" != device or missing(impl, law.needs, same_process=caller_of(impl).same_process):
        return NOTHING
    return law.share


def cut(weights: Sequence[float], n: int) -> list[int]:
    """The part, 1 to n, of each element of a line: n pieces of about equal weight, none empty if there are n elements."""
    parts: list[int] = []
    whole, before, last = sum(weights), 0.0, 0
    filled = min(n, len(weights))
    for place, own in enumerate(weights):
        by_weight = 1 + min(n - 1, int(n * (before + own / 2) / whole))
        last = max(min(by_weight, last + 1), filled - (len(weights) - place) + 1, 1)
        parts.append(last)
        before += own
    return parts


def split(items: list[pytest.Item], shard: Shard, device: str) -> tuple[list[pytest.Item], list[pytest.Item], dict]:
    """Items -> those of this part in their order, the others, and what the report says about the part.

    Tests that judge no implementation (the suite's own) are no part of the line, and stay.
    """
    line = sorted(filter(judges, items), key=_place)
    weights = [weight(getattr(item.function, "law", None), item.callspec.params["impl"], device) for item in line]
    elsewhere = {item for item, part in zip(line, cut(weights, shard.of), strict=True) if part != shard.part}
    names = "\n".join(f"{item.originalname}[{item.callspec.id}]" for item in line)
    facts = {
        "part": shard.part,
        "of": shard.of,
        "tests": len(line) - len(elsewhere),
        "tests_of_all": len(line),
        "digest_of_all": hashlib.sha256(names.encode()).hexdigest()[:16],  # the parts of one run have the same
    }
    return [i for i in items if i not in elsewhere], [i for i in items if i in elsewhere], facts


def _place(item: pytest.Item) -> tuple[str, int, str]:
    """Implementation, checksum, law: the same wherever pytest was started and whatever other plug-ins reordered."""
    return item.callspec.id, zlib.crc32(item.originalname.encode()), item.originalname
