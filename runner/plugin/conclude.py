"""Turns a verdict into the outcome of a pytest test."""

from __future__ import annotations

import pytest

from flash_attest.properties.judging.verdict import FAIL, REFUSED, UNKNOWN, Result


class LawFails(Exception):
    """The verdict "fail" on its way to pytest's report, which shows the message without a
    traceback.
    """


def conclude(result: Result) -> None:
    """Raise the exception that gives pytest's outcome. Nothing is raised for a pass; refused and
    unknown become a skip, a known failure an xfail, and any other failure LawFails.
    """
    if result.verdict == FAIL and result.known:
        pytest.xfail(f"known: {result.known} ({result.reason})")
    if result.verdict == FAIL:
        raise LawFails(result.message or result.reason)
    if result.verdict in (REFUSED, UNKNOWN):
        pytest.skip(f"{result.verdict}: {result.reason}")


def shows_message(report: pytest.TestReport, call: pytest.CallInfo) -> pytest.TestReport:
    """Return the report of a test. If a law fails, it shows the message without a traceback."""
    if call.excinfo is not None and isinstance(call.excinfo.value, LawFails):
        message = str(call.excinfo.value)
        report.longrepr.reprtraceback.reprentries = []
        report.longrepr.reprtraceback.extraline = message
        report.longrepr.reprcrash.message = message.splitlines()[0]  # the short summary shows this line
        report.sections = []
    return report
