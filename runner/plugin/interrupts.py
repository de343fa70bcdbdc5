"""Ends a run on Ctrl-C, SIGTERM and SIGHUP, at any moment, with whole files and pytest's status 2.

KeyboardInterrupt may be raised in any line. Some libraries catch it, and in a report that is being
written it would leave half of it. So a signal that comes while files are written waits, one that
was caught is raised again at the next test, and once the run ends, no more are raised.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from flash_attest.interrupted import SIGNALS, Interrupted, interrupt

EARLY = 2  # exit status before there is a session: pytest's for an interrupted run


def exit_early(at_once: bool = False) -> None:
    """Until a run is configured, end this process on Ctrl-C without a traceback.

    A worker has not received Ctrl-C until here (`pytest_sessionstart`). It ends at once, as pytest
    would print the traceback of an exit while it is configured.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, _end if at_once else _exit)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _exit(number: int, frame: object) -> None:
    sys.exit(EARLY)


def _end(number: int, frame: object) -> None:
    os._exit(EARLY)


USUAL = (signal.default_int_handler, signal.SIG_DFL, interrupt, _exit)  # handlers that are replaced


class Interrupts:
    """The plug-in object of the process that reports. Workers have pytest's own handler."""

    def __init__(self, config: pytest.Config):
        self.config = config
        self.seen = 0  # signals so far
        self.ending = False  # no more KeyboardInterrupt is raised
        self._waits = 0  # nested blocks in which a signal waits
        self._due = False
        self._before: dict[int, object] = {}

    def install(self) -> None:
        """Handle the signals from now on, unless somebody else handles or ignores them."""
        if threading.current_thread() is not threading.main_thread():
            return
        if hasattr(self.config, "workerinput"):  # a worker, which its controller ends
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
                exit_early(at_once=True)
            return
        for number in SIGNALS:
            if signal.getsignal(number) in USUAL:
                before = signal.signal(number, self._handle)
                self._before[number] = signal.default_int_handler if before is _exit else before

    def _handle(self, number: int, frame: object) -> None:
        self.seen += 1
        if self.ending:
            self._tell_workers(signal.SIGKILL if self.seen > 1 else signal.SIGINT)
        elif self._waits:
            self._due = True
        else:
            raise Interrupted

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Let a signal wait until the end of this block."""
        self._waits += 1
        try:
            yield
        finally:
            self._waits -= 1
            if self._due and not self._waits:
                self._due = False
                if not self.ending:
                    raise Interrupted

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self):
        """Start workers with SIGINT blocked, as Python would print a traceback while it starts.

        A signal that comes here ends the run at the next hook, when pytest can end it in order.
        """
        if signal.getsignal(signal.SIGINT) is _end:  # in a worker, which pytest can end in order from here on
            signal.signal(signal.SIGINT, signal.default_int_handler)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        self._waits += 1
        try:
            return (yield)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            self._waits -= 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        self._due = False
        self._again()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self._again()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        self._again()

    def _again(self) -> None:
        """Raise KeyboardInterrupt for a signal whose exception somebody has caught."""
        if self.seen and not self.ending:
            raise Interrupted

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        self.ending = True

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int):
        self.ending = True
        if self.seen:
            self._tell_workers(signal.SIGINT if self.seen == 1 else signal.SIGKILL)
        result = yield
        if self.seen and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            session.exitstatus = pytest.ExitCode.INTERRUPTED
        return result

    def pytest_unconfigure(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _tell_workers(self, number: int) -> None:
        """Send a signal to the workers of pytest-xdist, which would otherwise finish their law."""
        session = self.config.pluginmanager.get_plugin("dsession")
        manager = getattr(session, "nodemanager", None)
        for gateway in getattr(manager, "group", ()):
            worker = getattr(getattr(gateway, "_io", None), "popen", None)
            if worker is not None and worker.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, number)
