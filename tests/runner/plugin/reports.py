"""Reports that tests write to."""

from __future__ import annotations

from flash_attest.properties.judging.verdict import PASS, Result
from flash_attest.runner.plugin.report import Report

ENVIRONMENT = {"versions": {}, "command": "pytest", "device": "cpu", "started": "2026-11-22"}


def result(n: int, verdict: str = PASS, **fields) -> dict:
    return Result(f"impl_{n % 7}", "test_forward", f"test_{n}", verdict, **fields).as_dict()


def started(tmp_path, planned: int = 3, **environment) -> Report:
    report = Report(tmp_path)
    planned_of = {f"impl_{n}": {"test_forward": 1} for n in range(planned)}
    report.start(ENVIRONMENT | environment, planned, planned_of=planned_of)
    return report
