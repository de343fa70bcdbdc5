"""Chooses perturbations, and the repeats in which each is active.

Repeats come in rounds. In a round each perturbation has as many repeats of its own as it has slots,
in a random order, and one repeat has no perturbation. In half of a perturbation's repeats no other
is active, in a third one other, and in the rest any number. So in the long run, each perturbation
is active alone, and each pair is active together.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence

from flash_attest.races.perturb.perturbation import Perturbation

NONE = "none"  # the text for --perturb, and the name of a repeat without any
ALONE, PAIR = 0.5, 0.33


def choose(known: Mapping[str, Perturbation], text: str, device: str, emulated: bool) -> tuple[Perturbation, ...]:
    """Return the perturbations that a text names, in the order of application.

    See `chosen` in races/perturb.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    there = {name: each for name, each in known.items() if device in each.devices}
    if unknown := [name for name in names if name not in known and name != NONE]:
        those = ", ".join(f"{name} ({each.words})" for name, each in known.items())
        raise ValueError(
            f"{', '.join(unknown)}: no perturbation; those are {those}, and {NONE} for a launch like the first"
        )
    if NONE in names and len(names) > 1:
        raise ValueError(f"{text}: {NONE} stands alone")
    if elsewhere := [name for name in names if name != NONE and name not in there]:
        raise ValueError(f"{', '.join(elsewhere)}: not on {device}; there are {', '.join(there)}")
    if lacking := [f"{name}: {why}" for name in names if name in there and (why := there[name].lacking())]:
        raise ValueError("; ".join(lacking))
    if NONE in names:
        return ()
    wanted = [each for name, each in there.items() if name in names or (not names and not each.lacking())]
    return tuple(each for each in wanted if emulated or not each.emulated)


def rounds(perturbations: Sequence[Perturbation], seed: int) -> Iterator[tuple[Perturbation, ...]]:
    """Yield the perturbations of each repeat, in the order of application. This never ends."""
    if not perturbations:
        yield from itertools.repeat(())
    number = 0
    while True:
        draw = random.Random(f"{seed} {number}")
        own = [each for each in perturbations for _ in range(each.slots)]
        for main in draw.sample([None, *own], len(own) + 1):
            others = [each for each in perturbations if each is not main]
            luck, beside = draw.random(), []
            if main is not None and others and luck >= ALONE:
                beside = [draw.choice(others)] if luck < ALONE + PAIR else [e for e in others if draw.random() < 0.5]
            yield tuple(each for each in perturbations if each is main or each in beside)
        number += 1
