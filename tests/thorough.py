"""The option --thorough and the marker: tests that repeat for confidence what other tests check once.

`tox` leaves them out, and the last line of the run counts them as deselected; `tox -e thorough` runs them. A check that alone
finds a bug never has this marker.
"""

from collections.abc import Mapping
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thorough", action="store_true", help="also the tests that repeat for confidence (-m thorough)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "thorough: repeats for confidence what others check; runs with --thorough only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--thorough"):
        return
    left_out = [item for item in items if item.get_closest_marker("thorough")]
    items[:] = [item for item in items if not item.get_closest_marker("thorough")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)


def pytest_deselected(items: list[pytest.Item]) -> None:
    """A worker of pytest-xdist notes how many: otherwise the last line of a run with -n would not say so."""
    if items and (output := getattr(items[0].config, "workeroutput", None)) is not None:
        output["deselected"] = output.get("deselected", 0) + len(items)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error: object) -> None:
    """All workers leave out the same tests, so one of them is counted."""
    left_out = getattr(node, "workeroutput", {}).get("deselected", 0)
    terminal = node.config.pluginmanager.get_plugin("terminalreporter")
    if left_out and terminal is not None:
        terminal.stats["deselected"] = [SimpleNamespace()] * left_out  # Hypothesis reads the attributes of each


def covering(together: int, *parameters: Mapping[str, Any]) -> list:
    """Values for pytest.mark.parametrize: all combinations, of which few are not thorough.

    parameters: {name: value} for each argument. In the few, any `together` values of different arguments meet: 1 for
    arguments that have nothing to do with each other, 2 where a bug may need two of them.
    """
    every = list(product(*parameters))
    meetings = {names: set(combinations(enumerate(names), together)) for names in every}
    few, left = [], set().union(*meetings.values())
    while left:
        few.append(max(every, key=lambda names: (len(meetings[names] & left), -_most_used(names, few))))
        left -= meetings[few[-1]]
    return [
        pytest.param(
            *(values[name] for values, name in zip(parameters, names, strict=True)),
            id="-".join(names),
            marks=() if names in few else pytest.mark.thorough,
        )
        for names in every
    ]


def _most_used(names: tuple[str, ...], few: list[tuple[str, ...]]) -> int:
    """How often the values were chosen before, so that each is chosen about as often."""
    return sum(name == other for chosen in few for name, other in zip(names, chosen, strict=True))
