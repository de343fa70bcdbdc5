"""Keeps the contract check of what no law can judge in every run: a file that cannot be loaded, or
an implementation whose library is missing.

A run of other laws, or of a law by its id, would otherwise say nothing about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from flash_attest.impls.contract.entry import Entry, Unloadable
from flash_attest.impls.contract.record import Absent, Implementation
from flash_attest.places import ROOMS
from flash_attest.runner.plugin.order import judges

CONTRACT = str(ROOMS / "properties" / "test_contract.py")


def unjudged_in(entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries that only the contract check takes."""
    return [entry for entry in entries if isinstance(entry.impl, (Absent, Unloadable))]


def with_contract(arguments: Sequence[str], entries: Sequence[Entry]) -> list[str]:
    """Return pytest's arguments, with the contract check if some entries need it.

    Ids of tests of such an entry are left out, because pytest would not find them: a file that
    cannot be loaded has no name but its own.
    """
    if not unjudged_in(entries):
        return list(arguments)
    names = {entry.name for entry in entries if isinstance(entry.impl, Implementation)}
    found = [argument for argument in arguments if (impl := impl_in(argument)) is None or impl in names]
    return found if CONTRACT in found else [*found, CONTRACT]


def names_laws(arguments: Iterable[str]) -> bool:
    """Return whether some of pytest's arguments are laws, rather than other tests of a checkout."""
    laws = Path(CONTRACT).resolve().parent
    return any(Path(argument.partition("::")[0]).resolve().is_relative_to(laws) for argument in arguments)


def impl_in(argument: str) -> str | None:
    """Return the implementation in a test id, "a.py::test_law[mine]"; None without one."""
    test, bracket, parameters = argument.partition("[")
    return parameters.removesuffix("]") if bracket and "::" in test else None


def set_aside(items: list[pytest.Item]) -> list[pytest.Item]:
    """Remove the contract checks of what no law can judge from a list, and return them."""
    aside = [item for item in items if judges(item) and not _has_implementation(item)]
    items[:] = [item for item in items if item not in aside]
    return aside


def _has_implementation(item: pytest.Item) -> bool:
    # With nothing to judge, a law has pytest's own marker instead. It is no contract check, either.
    return not isinstance(item.callspec.params["impl"], (Absent, Unloadable))
