"""Small CUDA kernels of one idea each, half of them correct and half faulty: the tracer gives the
expected verdict.

The kernels and their verdicts are in tests/emulator/cuda/sources/battery/*.cu, in the notation of
battery.py.
"""

import functools
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from flash_attest.emulator.cuda import CudaError, load
from flash_attest.emulator.observation import Kind
from flash_attest.races.tracing import trace
from tests.emulator.battery import Micro, read_battery

HERE = Path(__file__).parent / "sources" / "battery"
LEVEL = "-O1"  # the tracer's own; an author may ask for another
LEVELS = (LEVEL, *(pytest.param(level, marks=pytest.mark.thorough) for level in ("-O0", "-O2")))
BATTERY = [micro for file in sorted(HERE.glob("*.cu")) for micro in read_battery(file)]
RIGHT = [micro for micro in BATTERY if not micro.faults]
FAULTY = [micro for micro in BATTERY if micro.faults]


@functools.cache
def module(file: Path, level: str | None):
    """Compile the file with all its functions."""
    names = dict.fromkeys(micro.name for micro in BATTERY if micro.file == file)
    return load(file, *names, level=level)


def call(micro: Micro, cu, values: dict) -> None:
    function = cu[micro.name]
    if micro.shape is not None:
        function = function.launch(*micro.launch)
    function(*values.values())


def traced(micro: Micro, level: str, seed: int = 0, switch: float = 0.0) -> list:
    """Return the findings. If the kernel is correct, also check its results."""
    cu, values = module(micro.file, level), micro.values()
    findings = trace(lambda: call(micro, cu, values), seed=seed, switch=switch)
    micro.check_findings(findings, f"at {level}, seed={seed}, switch={switch}")
    micro.check_results(values)
    return findings


# ---- the tests -----------------------------------------------------------------------------------

every = pytest.mark.parametrize("micro", BATTERY, ids=str)


@pytest.mark.parametrize("level", LEVELS)
@every
def test_verdict_and_result(micro: Micro, level: str):
    for finding in traced(micro, level):
        for site in finding.sites:
            assert Path(site.file).name == micro.file.name and f"{micro.file.name}:{site.line}" in str(finding)
            assert site.text == micro.file.read_text().splitlines()[site.line - 1].strip() and site.text in str(finding)


@every
def test_without_the_tracer(micro: Micro):
    """The plain build computes the same results, and a stopped kernel raises."""
    if micro.plain == "unsafe":
        pytest.skip("would read or write memory of other objects")
    cu, values = module(micro.file, LEVEL), micro.values()
    if micro.plain == "raises":
        with pytest.raises(CudaError):
            call(micro, cu, values)
        return
    try:
        call(micro, cu, values)
    except CudaError:
        # After such a mistake, a kernel may continue or stop.
        assert {fault.kind for fault in (*micro.faults, *micro.may)} & {Kind.BARRIER, Kind.MASK}
    micro.check_results(values)


@pytest.mark.parametrize("orders", [8, pytest.param(20, marks=pytest.mark.thorough)])
@every
def test_verdict_does_not_depend_on_the_order_of_threads(micro: Micro, orders: int):
    """Neither the order of threads nor switching threads at accesses changes the verdict, or the
    result of a correct kernel.
    """
    verdicts = Counter()
    for seed, switch in [*((seed, 0.0) for seed in range(orders)), (1, 0.1), (2, 0.3)]:
        findings = traced(micro, LEVEL, seed, switch)
        verdicts[micro.sure(findings)] += 1
    assert len(verdicts) == 1, verdicts


SHOWS = "exchange<false>", "total_of_blocks<false>", "histogram<false>", "rounds<false>", "product<true, false>"


@pytest.mark.parametrize("micro", [micro for micro in FAULTY if micro.name in SHOWS], ids=str)
def test_switching_threads_turns_a_race_into_a_wrong_result(micro: Micro):
    """A result counts as wrong if it differs from the result of the correct kernel of the same
    name.
    """
    right = next(m for m in RIGHT if m.name.split("<")[0] == micro.name.split("<")[0])
    wrong = 0
    for seed in range(1, 11):
        cu, values = module(micro.file, LEVEL), micro.values()
        trace(lambda cu=cu, values=values: call(micro, cu, values), seed=seed, switch=0.3)
        try:
            right.check_results(values)
        except AssertionError:
            wrong += 1
    assert wrong > 0


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, id=file.stem, marks=() if file.stem == "tiles" else pytest.mark.thorough)
        for file in sorted(HERE.glob("*.cu"))
    ],
)
def test_nvcc_takes_it(file: Path, tmp_path: Path):
    """nvcc compiles the battery, so it is CUDA, not only text that the shim accepts.

    A table of the functions instantiates the templates.
    """
    names = dict.fromkeys(micro.name for micro in BATTERY if micro.file == file)
    table = "".join(f"    (const void*){name},\n" for name in names)
    (tmp_path / "all.cu").write_text(f'#include "{file}"\nconst void* table[] = {{\n{table}}};\n')
    command = ("nvcc", "-ptx", "-std=c++17", "-arch=sm_80", "-o", str(tmp_path / "all.ptx"), str(tmp_path / "all.cu"))
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kernels = {micro.name.split("<")[0] for micro in BATTERY if micro.file == file and micro.shape is not None}
    ptx = (tmp_path / "all.ptx").read_text()
    assert [kernel for kernel in sorted(kernels) if f"{len(kernel)}{kernel}" not in ptx] == []


def test_the_battery_is_large_and_half_of_it_faulty():
    assert len(BATTERY) >= 72 and abs(len(RIGHT) - len(FAULTY)) <= len(BATTERY) / 4, (len(RIGHT), len(FAULTY))
    # REGISTER is for kernels that are compiled for sm_90 (tests/emulator/ptx/subjects/wgmma.ptx).
    assert {fault.kind for micro in FAULTY for fault in micro.faults} == {*Kind} - {Kind.REGISTER}
    assert len({str(micro) for micro in BATTERY}) == len(BATTERY)


def test_every_tag_is_used():
    """A tag that no verdict names is a typing error."""
    for file in sorted(HERE.glob("*.cu")):
        lines = enumerate(file.read_text().splitlines(), 1)
        written = {n for n, line in lines if re.search(r"//! \w+$", line)}
        faults = [fault for micro in FAULTY if micro.file == file for fault in (*micro.faults, *micro.may)]
        used = {line for fault in faults for line in (*sum(fault.lines, ()), *fault.may_lines)}
        assert written == used, file
