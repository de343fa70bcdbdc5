"""Compares global state around a call, restores it, and describes the changes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from flash_attest.properties.state import number_things, process_things, torch_things
from flash_attest.properties.state.thing import Change, Thing

THINGS = (*torch_things.THINGS, *number_things.THINGS, *process_things.THINGS)
STEADY, OTHERS = [t for t in THINGS if t.steady], [t for t in THINGS if not t.steady]
_read_steady, _read_others = [t.read for t in STEADY], [t.read for t in OTHERS]


class Watch:
    """Watches the calls of one case: use watch("forward") as a context.

    `changes` then has the changes that the call made. All of them are undone.
    """

    def __init__(self):
        self.changes: list[Change] = []
        self._steady = [read() for read in _read_steady]

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        modules, before = len(sys.modules), [read() for read in _read_others]
        try:
            yield
        finally:
            imported = len(sys.modules) != modules
            for things, was, now in (
                (OTHERS, before, [read() for read in _read_others]),
                (STEADY, self._steady, [read() for read in _read_steady]),
            ):
                if was != now:
                    self._put_back(phase, things, was, now, imported)

    def _put_back(self, phase: str, things: list[Thing], before: list, after: list, imported: bool) -> None:
        for thing, was, now in zip(things, before, after, strict=True):
            if was == now or (thing.lazily and imported) or (thing.optional and None in (was, now)):
                continue
            if thing.read() == was:  # restoring another Thing may have restored this one
                continue
            with suppress(Exception):  # a state that cannot be restored is still reported
                thing.put_back(was)
            self.changes.append(Change(thing, phase, f"{phase} {thing.change(was, now)}", now))
