"""The option --thorough and its marker, for tests that repeat, for confidence, what other tests
check once.

`tox` leaves these tests out, and the last line of the run counts them as deselected; `tox -e
thorough` runs them. A check that alone finds a bug never has this marker.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --thorough."""
    parser.addoption(
        "--thorough", action="store_true", help="run also the tests that repeat for confidence (-m thorough)"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", "thorough: repeats for confidence what others check; runs with --thorough only")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that only repeat other checks for confidence."""
    if config.getoption("--thorough"):
        return
    left_out = [item for item in items if item.get_closest_marker("thorough")]
    items[:] = [item for item in items if not item.get_closest_marker("thorough")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Record the number in a worker of pytest-xdist, so that the last line of a run with -n
    has it.
    """
    if items and (output := getattr(items[0].config, "workeroutput", None)) is not None:
        output["deselected"] = output.get("deselected", 0) + len(items)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error: object) -> None:
    """Count the deselected tests of one worker, because all workers leave out the same tests."""
    left_out = getattr(node, "workeroutput", {}).get("deselected", 0)
    terminal = node.config.pluginmanager.get_plugin("terminalreporter")
    if left_out and terminal is not None:
        terminal.stats["deselected"] = [SimpleNamespace()] * left_out  # Hypothesis reads attributes of each


def covering(together: int, *parameters: Mapping[str, Any]) -> list:
    """Return values for pytest.mark.parametrize: all combinations, most of them thorough.

    parameters: {name: value} for each argument. The few other combinations are chosen so that any
    `together` values of different arguments occur together: 1 for unrelated arguments, 2 if a bug
    may need two values.
    """
    every = list(product(*parameters))
    meetings = {names: set(combinations(enumerate(names), together)) for names in every}
    few, unmet = [], set().union(*meetings.values())
    used = Counter()  # how often each value was chosen, so that all are chosen about equally often

    def gain(names: tuple[str, ...]) -> tuple[int, int]:
        return len(meetings[names] & unmet), -sum(used[value] for value in enumerate(names))

    while unmet:
        few.append(max(every, key=gain))
        unmet -= meetings[few[-1]]
        used.update(enumerate(few[-1]))
    return [
        pytest.param(
            *(values[name] for values, name in zip(parameters, names, strict=True)),
            id="-".join(names),
            marks=() if names in few else pytest.mark.thorough,
        )
        for names in every
    ]
