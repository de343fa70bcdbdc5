"""Tests of the pages in a real browser. They run only with --page, because they need a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PATIENCE = 60_000  # milliseconds for what takes some tens on an idle machine
SPEED = pytest.StashKey[list]()  # lines for the end of the run


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave these tests out unless asked for."""
    here = {item for item in items if str(item.path).startswith(f"{HERE}/")}  # Path.parents is slow
    if here and not config.getoption("--page"):
        items[:] = [item for item in items if item not in here]
        config.hook.pytest_deselected(items=list(here))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what was measured. A busy machine changes it, so no test depends on it."""
    for line in config.stash.get(SPEED, []):
        terminalreporter.write_line(line)


@pytest.fixture(scope="package")  # its processes would be in the way of tests of other rooms
def browser() -> Iterator:
    """Start Chromium."""
    # Other runs collect this file and have no playwright.
    from playwright.sync_api import sync_playwright

    from tests.page.browsers import ARGUMENTS, executable

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable(playwright), args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="package")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write each page to a file of its own. Returns name -> file."""
    from tests.page.pages import write_all

    return write_all(tmp_path_factory.mktemp("pages"))


@pytest.fixture
def visit(browser, files: dict[str, Path]) -> Iterator:
    """visit(name, hash="", width=1440, **context) -> a page that is open.

    A page that asks for anything but its own file, or whose script raises, fails the test.
    """
    contexts, wrong = [], []

    def opened(name: str, hash: str = "", *, width: int = 1440, **context: object):
        made = browser.new_context(viewport={"width": width, "height": 900}, color_scheme="light", **context)
        contexts.append(made)
        made.set_default_timeout(PATIENCE)
        page = made.new_page()
        url = files[name].as_uri()
        page.on("request", lambda request: request.url.partition("#")[0] == url or wrong.append(request.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        page.on("console", lambda message: message.type == "error" and wrong.append(message.text))
        page.goto(url + hash)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []
