"""The pytest plug-in of the package. It does nothing until a test uses @attention_laws.

Every run of pytest in the environment imports this through its entry point. So it imports neither
torch nor anything that does, and all its options and settings begin with "attest".
"""

from __future__ import annotations

import sys

import pytest

from flash_attest.runner.plugin import hookspecs, table

DECORATOR = "flash_attest.decorator"  # loaded once a test module uses @attention_laws
KEY = "attest_tests"  # in the report of a test that judges a law, as in runner/plugin/outcomes.py


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register pytest_attention_impls in every run, so that any plug-in or conftest.py may
    implement it.
    """
    hookspecs.add_to(pluginmanager)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and settings of the plug-in."""
    group = parser.getgroup("flash-attest", "flash-attest: the laws of attention, in tests under @attention_laws")
    for option in table.OWN:
        option.add(group, table.OWN_PREFIX)
        if option.ini:
            parser.addini(f"attest_{option.name.replace('-', '_')}", option.help)
    parser.addini("attest_emulate", "without a GPU, run GPU kernels on the CPU: flash_attest.emulate()", type="bool")


def pytest_configure(config: pytest.Config) -> None:
    """Emulate a GPU if the settings ask for it, and wait for tests under @attention_laws."""
    if target := config.getoption(f"--{table.OWN_PREFIX}emulated"):  # before any test module is imported
        from flash_attest.emulator import devices

        devices.choose(int(target))
    if config.getini("attest_emulate"):
        from flash_attest.emulation import emulate

        emulate()
    if not hasattr(config, "attest"):  # otherwise this is a run of the suite itself (runner/plugin/suite.py)
        config.pluginmanager.register(Asleep(config), "attest-asleep")


@pytest.fixture
def emulated():
    """Runs GPU kernels on the CPU from this test on, if there is no GPU: flash_attest.emulate()."""
    from flash_attest.emulation import emulate

    emulate()


class Asleep:
    """Wakes the plug-in when tests under @attention_laws are collected, or a verdict arrives."""

    def __init__(self, config: pytest.Config):
        self.config = config
        self.awake = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Wake up once -k, -m, --lf and other plug-ins have selected the tests."""
        if DECORATOR in sys.modules:
            self._wake(session.items).begin()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Wake up for a worker's verdict: with pytest-xdist, only workers collect tests."""
        if not self.awake and any(name == KEY for name, _ in report.user_properties):
            self._wake([]).pytest_runtest_logreport(report)

    def _wake(self, items: list[pytest.Item]):
        from flash_attest.runner.plugin.conclusion import LastLine
        from flash_attest.runner.plugin.own import Own

        self.awake = True
        own = Own(self.config, items)
        self.config.pluginmanager.register(own, "attest-own")
        self.config.pluginmanager.register(LastLine(own), "attest-last-line")
        return own
