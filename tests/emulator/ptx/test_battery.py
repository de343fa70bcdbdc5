"""PTX kernels of one idea each, half of them right but tempting, half racy or faulty: judged right in 20 orders of threads.

The subjects and their verdicts are in subjects/*.ptx, in the notation of tests/emulator/battery.py. Those without .loc lines
are hand-written; the others were made of the .cu beside them by nvcc (`python -m tests.emulator.ptx.compiled`).
"""

import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from emulator.ptx import PtxError, load
from emulator.observation import Kind
from races.tracing import trace
from tests.emulator.battery import Micro, read_battery

HERE = Path(__file__).parent / "subjects"
BATTERY = [micro for file in sorted(HERE.glob("*.ptx")) for micro in read_battery(file)]
RIGHT = [micro for micro in BATTERY if not micro.faults]
FAULTY = [micro for micro in BATTERY if micro.faults]
ORDERS = [*((seed, 0.0) for seed in range(20)), (1, 0.1), (2, 0.3)]  # (seed, switch)

pytestmark = pytest.mark.usefixtures("one_thread")


def call(micro: Micro, values: dict) -> None:
    kernel = load(micro.text(), source=str(micro.file))[micro.name]
    kernel.launch(*micro.launch)(*values.values(), names=list(values))


def traced(micro: Micro, seed: int = 0, switch: float = 0.0) -> list:
    """The findings; also checks the results of a right kernel."""
    values = micro.values()
    findings = trace(lambda: call(micro, values), seed=seed, switch=switch, limit=10.0)
    micro.check_findings(findings, f"seed={seed}, switch={switch}")
    micro.check_results(values)
    return findings


every = pytest.mark.parametrize("micro", BATTERY, ids=str)


@every
def test_verdict_and_result_in_every_order_of_threads(micro: Micro):
    verdicts = Counter(micro.sure(traced(micro, seed, switch)) for seed, switch in ORDERS)
    assert len(verdicts) == 1, verdicts


@every
def test_findings_quote_the_line(micro: Micro):
    lines = micro.text().splitlines()
    for finding in traced(micro):
        for site in finding.sites:
            assert Path(site.file).name == micro.file.name and f"{micro.file.name}:{site.line}" in str(finding)
            assert site.text == lines[site.line - 1].strip() and site.text in str(finding)
