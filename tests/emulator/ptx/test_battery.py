"""PTX kernels of one idea each, judged in 20 orders of threads: half of them correct but
suspicious, half racy or faulty.

The subjects and their verdicts are in subjects/*.ptx, in the notation of tests/emulator/battery.py.
They are hand-written or, in by_nvcc.ptx, made by nvcc.
"""

import functools
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from flash_attest.emulator.observation import Kind
from flash_attest.emulator.ptx import Module, PtxError, load
from flash_attest.races.tracing import trace
from tests.emulator.battery import Micro, read_battery

HERE = Path(__file__).parent / "subjects"
BATTERY = [micro for file in sorted(HERE.glob("*.ptx")) for micro in read_battery(file)]
RIGHT = [micro for micro in BATTERY if not micro.faults]
FAULTY = [micro for micro in BATTERY if micro.faults]
TAG = re.compile(r"//! (\w+)$")
ORDERS = [*((seed, 0.0) for seed in range(20)), (1, 0.1), (2, 0.3)]  # (seed, switch)


@functools.cache
def module(micro: Micro) -> Module:
    return load(micro.text(), source=str(micro.file))


def call(micro: Micro, values: dict) -> None:
    kernel = module(micro)[micro.name]
    kernel.launch(*micro.launch)(*values.values(), names=list(values))


def traced(micro: Micro, seed: int = 0, switch: float = 0.0) -> list:
    """Return the findings. If the kernel is correct, also check its results."""
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


@every
def test_without_tracing(micro: Micro):
    """A correct kernel computes the same results; an error that stops a GPU raises."""
    if micro.plain == "unsafe":
        pytest.skip("would read or write memory of other objects")
    values = micro.values()
    if micro.plain == "raises":
        with pytest.raises(PtxError):
            call(micro, values)
        return
    try:
        call(micro, values)
    except PtxError:
        assert {fault.kind for fault in (*micro.faults, *micro.may)} - {Kind.RACE, Kind.UNINITIALISED, Kind.ASYNC}
    micro.check_results(values)


def test_the_battery_is_large_and_half_of_it_faulty():
    assert len(BATTERY) >= 60 and abs(len(RIGHT) - len(FAULTY)) <= len(BATTERY) / 4, (len(RIGHT), len(FAULTY))
    assert {fault.kind for micro in FAULTY for fault in micro.faults} == set(Kind) - {Kind.LAUNCH}
    assert len({str(micro) for micro in BATTERY}) == len(BATTERY)


def test_every_tag_is_used():
    """A tag that neither a verdict nor an edit names is a typing error."""
    for file in sorted(HERE.glob("*.ptx")):
        written = {
            n: match[1] for n, line in enumerate(file.read_text().splitlines(), 1) if (match := TAG.search(line))
        }
        of_file = [micro for micro in BATTERY if micro.file == file]
        faults = [fault for micro in of_file for fault in (*micro.faults, *micro.may)]
        used = {line for fault in faults for line in (*sum(fault.lines, ()), *fault.may_lines)}
        edited = {micro.edit[1] for micro in of_file} | {tag for m in of_file for tag in TAG.findall(m.edit[0])}
        assert {n for n, tag in written.items() if n not in used and tag not in edited} == set(), file


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="ptxas is not installed")
@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, id=file.stem, marks=() if n == 0 else pytest.mark.thorough)
        for n, file in enumerate(sorted(HERE.glob("*.ptx")))
    ],
)
def test_ptxas_takes_it(file: Path, tmp_path: Path):
    """ptxas accepts the battery and each edit, so they are real PTX, not only text that our parser
    accepts.
    """
    for text in {micro.text() for micro in BATTERY if micro.file == file}:
        (tmp_path / "one.ptx").write_text("\n".join(line.split("//")[0] for line in text.splitlines()) + "\n")
        target = re.search(r"^\.target (\w+)", text, re.M)[1]
        command = ("ptxas", f"-arch={target}", "-o", str(tmp_path / "one.cubin"), str(tmp_path / "one.ptx"))
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
