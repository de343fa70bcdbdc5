"""The option --thorough and the marker: tests that repeat for confidence what other tests check once.

`tox` leaves them out, and the last line of the run counts them as deselected; `tox -e thorough` runs them. A check that alone
finds a bug never has this marker.
"""

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
        terminal.stats["deselected"] = [None] * left_out
