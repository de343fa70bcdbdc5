"""An implementation and a plug-in for pytest that interrupt a run at the moment in INTERRUPT."""

import contextlib
import os
import signal
from dataclasses import replace

import pytest

from tests.plugins import good

MAIN = int(os.environ.setdefault("INTERRUPTED_PROCESS", str(os.getpid())))
MOMENT, _, NUMBER = os.environ.get("INTERRUPT", "").partition(" ")


def reach(moment: str) -> None:
    """Send the signal if this is the moment, once; "twice" also sends it while the run ends."""
    if moment == MOMENT and os.environ.get("INTERRUPT_SENT") != moment:
        os.environ["INTERRUPT_SENT"] = moment
        os.kill(MAIN, int(NUMBER or signal.SIGINT))


def forward(q, k, v):
    reach("call")
    if MOMENT == "shrinking":
        calls.append(q.shape)
        if len(calls) > 8:
            reach("shrinking")
        return good.forward(q, k, v) + 1.0
    return good.forward(q, k, v)


calls: list = []
IMPL = replace(good.IMPL, name="interrupting", forward=forward)
if __name__.startswith("attest_plugin_"):
    reach("import")
elif os.getpid() == MAIN:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell makes background processes ignore it


def pytest_collection_modifyitems():
    reach("collection")


def pytest_runtest_setup(item):
    if MOMENT == "caught":  # a library that catches it
        with contextlib.suppress(KeyboardInterrupt):
            reach("caught")
    reach("test")


@pytest.hookimpl(tryfirst=True)
def pytest_keyboard_interrupt():
    if MOMENT == "twice":
        os.kill(MAIN, signal.SIGINT)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report):
    from flash_attest.runner.plugin.folder import Folder

    if MOMENT in ("writing", "twice") and not hasattr(Folder, "write_"):
        Folder.write_ = Folder.write
        Folder.write = writing


def writing(self, name, text):
    reach(MOMENT)
    return self.write_(name, text)


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary():
    reach("summary")
