"""A plug-in for pytest that interrupts a run after its first verdict, a resumed run before any."""


def pytest_runtest_setup(item):
    if item is not item.session.items[0] or item.config.getoption("--resume"):
        raise KeyboardInterrupt
