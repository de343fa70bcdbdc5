"""Tells whether a call that changes a random number generator seeds it, or depends on its numbers.

To draw from a generator is no mistake: kernels draw a seed for dropout even where the dropout is 0.
It is one if outputs depend on the numbers, as attention is a function of its inputs. To seed the
generator is one, too: the program's other random numbers then repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import torch

from flash_attest.impls.contract.tensors import Outputs
from flash_attest.properties.state.thing import Change
from flash_attest.races.bits import bits


@dataclass
class Randomness:
    """The findings about random numbers, in words: `problems` of the contract, and `remarks`."""

    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def randomness(
    changes: list[Change],
    first: Outputs,
    again: Callable[[], tuple[Outputs, list[Change]]],
    repeatable: Collection[str],
) -> Randomness:
    """Call again, from the same state of the generators and from another one.

    changes: of generators, in the call that returned `first`. again: makes the call once more, and
    returns copies of its outputs and its changes. repeatable: the outputs that keep their bits.
    """
    things = [change.thing for change in changes]
    before = [thing.read() for thing in things]
    try:
        same, _ = again()
        for thing in things:
            thing.draw()
        other, later = again()
    finally:
        for thing, state in zip(things, before, strict=True):
            thing.put_back(state)
    found = Randomness()
    left = {change.name: change.after for change in later}
    seeded = [change for change in changes if left.get(change.name) == change.after]
    drawn = [change for change in changes if change not in seeded]
    for change in seeded:
        name, own = change.name, change.thing.own
        found.problems.append(
            f"{change.phase} seeds {name}, so those that the program draws later repeat: use a separate generator ({own})"
        )
    depend = [
        name
        for name in repeatable
        if _equal(first, same, name) and not _equal(first, other, name)  # a race changes it in any repeat
    ]
    for change in drawn:
        text = f"{change.phase} draws from {change.name}"
        if depend:
            verb = "depends" if len(depend) == 1 else "depend"
            found.problems.append(f"{text}, and {', '.join(depend)} {verb} on them: should depend on the inputs alone")
        else:
            found.remarks.append(f"{text}, but its outputs do not depend on them")
    return found


def _equal(a: Outputs, b: Outputs, name: str) -> bool:
    one, two = getattr(a, name), getattr(b, name)
    return one is None or torch.equal(bits(one.contiguous()), bits(two.contiguous()))
