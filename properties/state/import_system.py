"""Python's import system: an import may add to it, but must not take anything away."""

from __future__ import annotations

import sys
from collections.abc import Callable

from flash_attest.impls.contract.loading import MODULES
from flash_attest.properties.state.thing import Thing


def modules_thing() -> Thing:
    """Return a Thing for the modules that are loaded now, which an import may only add to.

    The file's own module is left out: a file may put another object in its place.
    """
    table = sys.modules

    def read() -> tuple[bool, dict]:
        now = sys.modules
        return now is table, {name: now.get(name) for name in before}

    def put_back(_: object) -> None:
        sys.modules = table
        table.update(before)

    before = {name: module for name, module in table.items() if not name.startswith(MODULES)}
    return Thing("sys.modules", read, put_back, _modules_words)


def _modules_words(before: tuple, after: tuple) -> str:
    if not after[0]:
        return "replaces sys.modules itself and does not restore it"
    names = [name for name, module in before[1].items() if after[1][name] is not module]
    removed = [name for name in names if after[1][name] is None]
    what, shown = ("removes", removed) if removed else ("replaces", names)
    return f"{what} {', '.join(shown[:3])} in sys.modules{f' and {len(shown) - 3} more' if len(shown) > 3 else ''}"


def path_thing() -> Thing:
    """Return a Thing for sys.path.

    What was added stays, behind all others: functions of the file may import from there.
    """
    path = sys.path

    def put_back(before: list[str]) -> None:
        added = [each for each in sys.path if each not in before]
        sys.path = path
        path[:] = [*before, *added]

    return Thing("sys.path", lambda: sys.path[:], put_back, _path_words)


def _path_words(before: list[str], after: list[str]) -> str:
    removed = [each for each in before if each not in after]
    return f"removes {removed[0]!r} from sys.path and does not restore it" if removed else ""


def hooks_thing(name: str, owned: Callable[[object], bool]) -> Thing:
    """Return a Thing for a list of import hooks, sys.meta_path or sys.path_hooks.

    Hooks of libraries stay, behind all others: six, for one, imports its modules by its own. owned:
    whether a hook is the file's.
    """
    hooks = getattr(sys, name)

    def put_back(before: list) -> None:
        added = [hook for hook in getattr(sys, name) if hook not in before and not owned(hook)]
        setattr(sys, name, hooks)
        hooks[:] = [*before, *added]

    def words(before: list, after: list) -> str:
        added = [hook for hook in after if hook not in before and owned(hook)]
        removed = [hook for hook in before if hook not in after]
        what = "adds to" if added else "removes from" if removed else ""
        return f"{what} sys.{name} and does not restore it" if what else ""

    return Thing(f"sys.{name}", lambda: getattr(sys, name)[:], put_back, words)
