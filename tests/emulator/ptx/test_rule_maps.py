"""Compares the PTX machine with the race rule, on random small programs that make tensor maps
(map_programs.py).
"""

from __future__ import annotations

import pytest

from flash_attest.races.events import MapAcquire, MapRelease
from flash_attest.races.launch import Launch
from flash_attest.races.rule import races
from tests.emulator.ptx.drawn_maps import programs
from tests.emulator.ptx.test_rule_wgmma import changed, compare, drawn, shows, some_quick, without


@pytest.mark.parametrize("count", [40, pytest.param(10_000, marks=pytest.mark.thorough)])
def test_the_machine_says_what_the_rule_says(count):
    compare(count, programs())


@pytest.fixture(scope="module")
def some(pytestconfig):
    """Return programs with the races that the rule finds."""
    return [
        (program, races(program.launch()))
        for program in drawn(150 if pytestconfig.getoption("--thorough") else 60, programs())
    ]


class Unread(Launch):
    """Copies do not read their maps."""

    def accesses(self):
        return [access for access in super().accesses() if not access.of_map]


class ByPath(Launch):
    """A map needs no fence of its own."""

    def _published(self, a, b, wide):
        return self.path(a.point, b.point)


class AnyOrder(Launch):
    """An acquire may come before the release."""

    def _published(self, a, b, wide):
        acquired = [point for point, of in self.map_acquires.items() if of.covers(b.access)]
        return all(
            any(self.path(a.point, point) and self.path(point, b.point) for point in points)
            for points in (self.map_releases, acquired)
        )


def of_both_maps(event) -> list:
    return [MapAcquire((name, None), 0) for name in ("m0", "m1")] if isinstance(event, MapAcquire) else [event]


def both(event) -> list:
    return [MapRelease(), event] if isinstance(event, MapAcquire) else [event]


# What a machine could do wrong: a program's launch as the rule is then asked about it.
MISTAKES = {
    "copies do not read their maps": lambda program: Unread(program.launch().threads),
    "a map needs no fence": lambda program: ByPath(program.launch().threads),
    "an acquire may come before the release": lambda program: AnyOrder(program.launch().threads),
    "a release is never seen": without(MapRelease),
    "an acquire is never seen": without(MapAcquire),
    "an acquire is a release, too": changed(both),
    "an acquire is one of all maps": changed(of_both_maps),
}


@some_quick(MISTAKES, "a map needs no fence", "an acquire is never seen", "copies do not read their maps")
def test_drawn_programs_show_a_machine_that_is_wrong(some, mistake):
    shows(mistake, some)


def test_many_drawn_programs_are_right(some):
    assert len(some) / 8 < sum(not racing for _, racing in some) < 3 * len(some) / 4
