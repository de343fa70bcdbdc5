"""Compares global state around a call, restores it, and describes the changes."""

from __future__ import annotations

import sys
from contextlib import suppress

from flash_attest.properties.state import number_things, process_things, torch_things
from flash_attest.properties.state.patched import modules, near, words
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
        self.replaced: list[str] = []  # names of functions that calls replaced
        self.functions, self.loaded = near(), modules()
        self.steady = [read() for read in _read_steady]

    def __call__(self, phase: str) -> _Watched:
        return _Watched(self, phase)


class _Watched:
    """The context of one phase.

    It is no generator, because contextlib calls builtins, which the phase may have replaced.
    """

    def __init__(self, watch: Watch, phase: str):
        self.watch, self.phase = watch, phase

    def __enter__(self) -> None:
        self.modules, self.before = len(sys.modules), [read() for read in _read_others]

    def __exit__(self, *error: object) -> None:
        # First what the code below calls.
        names = self.watch.functions.put_back()
        if len(sys.modules) < self.modules:
            names += self.watch.loaded.put_back()
        if names:
            self.watch.replaced += names
            self.watch.changes.append(Change(", ".join(names), words(self.phase, names)))
        now, imported = [read() for read in _read_others], len(sys.modules) != self.modules
        if self.before != now:
            self._put_back(OTHERS, self.before, now, imported)
        now = [read() for read in _read_steady]
        if self.watch.steady != now:
            self._put_back(STEADY, self.watch.steady, now, imported)

    def _put_back(self, things: list[Thing], before: list, after: list, imported: bool) -> None:
        for thing, was, now in zip(things, before, after, strict=True):
            if was == now or (thing.lazily and imported) or (thing.optional and None in (was, now)):
                continue
            if thing.read() == was:  # restoring another Thing may have restored this one
                continue
            with suppress(Exception):  # a state that cannot be restored is still reported
                thing.put_back(was)
            text = f"{self.phase} {thing.change(was, now)}"
            self.watch.changes.append(Change(thing.name, text, self.phase, thing, now))
