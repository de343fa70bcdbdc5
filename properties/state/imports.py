"""Compares global state around the import of a file, restores it, and describes the changes."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import torch

from flash_attest.impls.contract.loading import MODULES
from flash_attest.properties.state import patched, watch
from flash_attest.properties.state.import_system import hooks_thing, modules_thing, path_thing
from flash_attest.properties.state.import_things import FIRST, FOR_GOOD, OTHERS
from flash_attest.properties.state.process_things import keep_streams
from flash_attest.properties.state.thing import Import, Thing

HOOKS = ("meta_path", "path_hooks")
# These come before other state of torch, which could not be read while a mode raises.
MODES = ("torch's dispatch modes", "torch's default device", "torch's function modes")
WHAT = "importing it"
UNREADABLE = object()

Setting = Callable[[], contextlib.AbstractContextManager[None]]

_end, _getpid = os._exit, os.getpid  # the file may replace them


class ImportWatch:
    """Watches one import: use it as a context. What the import changed is undone afterwards.

    broken: the changes that break the contract, in words. remarks: the others that are worth a
    word. lasting: those that could not be undone. settings: contexts in which the settings that the
    file chose for itself hold again.

    functions: the functions as they are now, if they have been recorded already. disposable:
    whether this process ends after the import. The watch then also looks for what nothing can undo.
    """

    def __init__(self, functions: patched.Functions | None = None, disposable: bool = False):
        self.functions, self.disposable = functions or patched.loaded(), disposable
        self.broken: list[str] = []
        self.remarks: list[str] = []
        self.lasting: list[str] = []
        self.settings: list[Setting] = []

    def __enter__(self) -> ImportWatch:
        keep_streams()
        of_now = [modules_thing(), path_thing(), *(hooks_thing(name, _is_of_a_file) for name in HOOKS)]
        known = {thing.name: thing for thing in watch.THINGS}
        modes = [known.pop(name) for name in MODES]
        things = {thing.name: thing for thing in (*of_now, *modes, *known.values(), *OTHERS)}
        things |= {thing.name: thing for thing in of_now}  # a call must not even add to sys.path
        last = [*things.values(), *(FOR_GOOD if self.disposable else ())]
        self._process, self._hooked = _getpid(), False
        self._tracing = (
            (sys.gettrace, sys.settrace, sys.gettrace()),
            (sys.getprofile, sys.setprofile, sys.getprofile()),
        )
        if self.disposable:
            sys.addaudithook(self._audit)
        self._kernels = _kernels_of_torch()
        self._first = [(thing, _read(thing)) for thing in FIRST]
        self._last = [(thing, _read(thing)) for thing in last]
        self._logging = _as_in_a_new_program()
        self._logging.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        # A function that traces would see, and could end, what follows.
        traced = False
        for get, put, before in self._tracing:
            try:
                changed = get() is not before
            except BaseException:  # Python unsets a function that raises
                changed = True
            if changed:
                traced = True
                put(before)
        if _getpid() != self._process:  # the file has forked, and its child must not go on as pytest
            _end(0)
        for thing, before in self._first:
            self._compare(thing, before)
        replaced = self.functions.undo()
        self._logging.__exit__(None, None, None)
        for thing, before in self._last:
            self._compare(thing, before)
        if traced:
            self.broken.append(f"{WHAT} sets a trace function (sys.settrace, sys.setprofile) and does not unset it")
        by_libraries = {each.full_name: library for each in replaced if (library := each.library())}
        self.remarks += [f"{patched.words(WHAT, [name])} ({library} does)" for name, library in by_libraries.items()]
        if names := [each.full_name for each in replaced if each.full_name not in by_libraries]:
            self.broken.append(patched.words(WHAT, names))
        if registered := sorted(_kernels_of_torch() - self._kernels):
            self.lasting.append(f"{WHAT} registers its own kernel for {registered[0]}, an operator of torch")
        if self._hooked:
            self.lasting.append(f"{WHAT} adds an audit hook (sys.addaudithook)")
        self.functions = self._first = self._last = None

    def _audit(self, event: str, arguments: tuple) -> None:
        self._hooked |= event == "sys.addaudithook"

    def _compare(self, thing: Thing, before: Any) -> None:
        now = _read(thing)
        if before is UNREADABLE or now == before or (thing.optional and None in (before, now)):
            return
        with suppress(Exception):  # it is looked at again below
            thing.put_back(before)
        text = _words(thing, before, now)
        if text and thing.imported is not Import.ALLOWED:
            (self.broken if thing.imported is Import.BREAKS else self.remarks).append(text)
        if thing.again is not None and now is not UNREADABLE:
            self.settings.append(partial(_holding, thing, before, now))
        left = _read(thing)
        if left != before and _words(thing, before, left):
            self.lasting.append(text)


def _kernels_of_torch() -> set[str]:
    """Return the kernels of torch's own operators that Python code has registered so far.

    Importing torch's modules adds kernels for the device "meta", which computes nothing.
    """
    registered = getattr(torch.library, "_impls", ())  # private: it has no public name
    return {name for name in registered if name.startswith("aten/") and not name.endswith("/Meta")}


def _is_of_a_file(hook: object) -> bool:
    return str(getattr(hook, "__module__", "")).startswith(MODULES)


def _read(thing: Thing) -> Any:
    with suppress(Exception):
        return thing.read()
    try:
        with torch._C.DisableTorchFunction():  # a function mode of the file raises
            return thing.read()
    except Exception:
        return UNREADABLE


def _words(thing: Thing, before: Any, now: Any) -> str:
    """Return a change in words, or "" if it means nothing."""
    if now is UNREADABLE:
        return f"{WHAT} changes {thing.name}"
    if thing.draw:  # an import is not repeated, so nobody knows which
        return f"{WHAT} seeds {thing.name}, or draws from them: use a separate generator ({thing.own})"
    try:
        text = thing.change(before, now)
    except Exception:  # its words may meet values that they do not expect
        text = f"changes {thing.name}"
    return f"{WHAT} {text}" if text else ""


@contextlib.contextmanager
def _as_in_a_new_program() -> Iterator[None]:
    """Hide the handlers of logging in this block, because configuring it once more closes them."""
    root, known = logging.getLogger().handlers, logging._handlerList
    before = root[:], known[:]
    root.clear()
    known.clear()
    try:
        yield
    finally:
        root[:], known[:] = before[0], [*before[1], *known]


@contextlib.contextmanager
def _holding(thing: Thing, before: Any, after: Any) -> Iterator[None]:
    """Make the change from `before` to `after` in this block."""
    now = thing.read()
    thing.again(before, after)
    try:
        yield
    finally:
        thing.put_back(now)
