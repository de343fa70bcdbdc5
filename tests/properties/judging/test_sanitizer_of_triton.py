"""Copies of a value that threads of a Triton kernel store, under compute-sanitizer.

The log has, in racecheck's format, what it found on an H200 in our delta kernel, compiled by Triton
3.6 (docs/why/races.md#sanitizer). The kernel has another name here, because this process may have
compiled ours.
"""

import pytest

from flash_attest.properties.judging.verdict import FAIL, PASS
from tests.properties.judging.sanitizing import have_kernels, judged

WRITE = "Write access at kernel_of_copies+0x{} in /site/backward.py:{}"


def race(one: str, other: str) -> str:
    return f"""========= COMPUTE-SANITIZER
========= Error: Race reported between {one}
=========     and {other} [165 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""


COPIES = race(WRITE.format("c80", 69), WRITE.format("c80", 69))


class CompiledKernel:
    """A stand-in for what Triton keeps of a kernel that it has compiled."""

    def __init__(self, name: str):
        self.name = name


@pytest.fixture
def reported(installed, monkeypatch):
    """A function: what racecheck writes -> the result, if Triton has compiled kernel_of_copies."""

    def judge(log: str):
        kernel = CompiledKernel("kernel_of_copies")
        installed(runs=False, racecheck=log)
        have_kernels(monkeypatch, lambda trial: [kernel.name])
        return judged()

    return judge


def test_copies_of_a_value_are_no_race_and_the_verdict_names_them(reported):
    result = reported(COPIES)
    assert result.verdict == PASS
    assert result.reason.endswith("; copies of a value, which Triton's threads may all store, in backward.py:69")


def test_two_writes_on_one_line_of_another_kernel_are_a_race(reported):
    result = reported(COPIES.replace("kernel_of_copies", "kernel_of_numba"))
    assert (result.verdict, result.findings) == (
        FAIL,
        ["race: shared memory, write and write, no barrier between, backward.py:69"],
    )


@pytest.mark.parametrize(
    "log",
    [
        race(WRITE.format("c80", 69), WRITE.format("d00", 70)),
        race(WRITE.format("c80", 69), "Read access at kernel_of_copies+0xc80 in /site/backward.py:69"),
        race("Write access at kernel_of_copies+0xc80", "Write access at kernel_of_copies+0xc80"),  # no line is known
    ],
)
def test_other_races_of_a_triton_kernel_count(reported, log):
    assert reported(log).verdict == FAIL
