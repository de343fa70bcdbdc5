"""Replaces a worker of pytest-xdist that has lost its GPU context, as the judging process is
replaced where laws are judged in one (runner/isolation).

Without isolation a law that makes an illegal access leaves the worker without a GPU. The worker
then ends before its next test. pytest-xdist starts another one, and takes the test for one that
crashed: it is judged again instead.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from flash_attest.runner.plugin.outcomes import result_of

if TYPE_CHECKING:
    from flash_attest.runner.plugin.reporter import Reporter

OVER_KEY = "attest_over"  # with the report of a test: the worker ends before its next test
MAY_END = "attest_may_end"  # in a worker's input
AGAIN = "again"  # the outcome of a test that another worker judges
# pytest-xdist ends the run after 4 ended workers for each one, and some may be about to end.
MOST_FOR_EACH = 3


class Replacing:
    """The plug-in object, one for each pytest process."""

    def __init__(self, config: pytest.Config, reporter: Reporter):
        self.reporter = reporter
        self.may_end = getattr(config, "workerinput", {}).get(MAY_END, False)
        self.ending: set[str] = set()  # the workers that end before their next test
        self.replaced = 0

    # --- on a worker -----------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo):
        report = yield
        if self.may_end and call.when == "call" and self.reporter.judging.over:
            report.user_properties.append((OVER_KEY, True))
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        if self.may_end and self.reporter.judging.over:
            self.reporter.judging.close()
            os._exit(1)  # Python's own end may wait for the lost GPU

    # --- on the controller -----------------------------------------------------------------------

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node) -> None:
        node.workerinput[MAY_END] = self.replaced < MOST_FOR_EACH * self.reporter.options.workers

    def pytest_runtest_logreport(self, report) -> None:
        if result_of(report, OVER_KEY) and (node := getattr(report, "node", None)):
            self.ending.add(node.gateway.id)
            self.reporter.tell(f"{node.gateway.id} has lost the GPU in {report.nodeid}: another worker goes on")

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report, sched) -> None:
        if report.node.gateway.id in self.ending:
            self.replaced += 1
            report.outcome = AGAIN
            sched.mark_test_pending(crashitem)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report) -> tuple[str, str, str] | None:
        return ("", "", "") if report.outcome == AGAIN else None
