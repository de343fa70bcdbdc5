"""The law about compute-sanitizer, tested on a CPU: another program takes the tool's place and runs
the case.
"""

import subprocess
import sys
import time
from dataclasses import replace

import pytest

from flash_attest.impls.contract.loading import from_file
from flash_attest.properties import test_races
from flash_attest.properties.calling.caller import Caller
from flash_attest.properties.failures import LawBroken, Reason
from flash_attest.properties.judging import sanitized, search
from flash_attest.properties.judging.origin import OwnRun
from flash_attest.properties.judging.verdict import FAIL, PASS, REFUSED, UNKNOWN
from flash_attest.properties.machine import gpu_memory
from flash_attest.properties.progress import NOW
from flash_attest.races.sanitizer import Tool
from flash_attest.runner import alone
from flash_attest.runner.green import Asked, not_green
from tests.places import ROOT
from tests.properties.judging.sanitizing import CASE, LOGS, have_kernels, judged
from tests.races.fake_sanitizer import fake
from tests.trials import lines

PLUGIN = "tests/plugins/good.py"


def test_a_plug_in_is_found_in_the_other_process(installed, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(test_races.sanitized, "__defaults__", ([Tool.RACECHECK],))
    installed()
    (entry,) = from_file(PLUGIN)
    result = judged(entry.impl, case=CASE, origin=OwnRun(f"--impl-from={PLUGIN}"))
    assert (result.verdict, result.reason) == (PASS, "nothing reported for 1 case of forward")


def test_findings_of_all_tools_are_one_set_with_their_cases(installed, patient):
    installed(runs=False, **{name: (LOGS / f"{name}.log").read_text() for name in ("racecheck", "synccheck")})
    result = judged()
    assert result.verdict == FAIL and result.cases < 200
    assert (
        result.reason == "race: shared memory, read and write, no barrier between, fa2_forward.cuh:76 and tiles.cuh:55"
    )
    observed = lines(result.message)
    assert "5 findings in 2 cases, each with its smallest case" in observed
    assert "barrier: Divergent thread(s) in warp, 09_debug_and_sanitizer.cu:61" in observed
    assert sum(line.startswith("smallest case, of 2 that show it: seqlen_q=65 seqlen_k=65") for line in observed) == 5


def test_a_tool_that_says_nothing_is_unknown_and_the_others_findings_are_findings(installed):
    installed(runs=False, memcheck="")
    result = judged(case=CASE)
    assert (result.verdict, result.why) == (UNKNOWN, Reason.RESOURCES)
    assert result.reason.startswith("memcheck ended without a summary, with exit status 0")
    installed(runs=False, memcheck="", racecheck=(LOGS / "racecheck_older.log").read_text())
    assert judged(case=CASE).reason.startswith("race: shared memory, read and write")


def test_without_the_tool_it_is_unknown_and_the_run_is_green(monkeypatch):
    monkeypatch.setattr(sanitized.sanitizer, "find", lambda: None)
    result = judged()
    assert (result.verdict, result.why) == (UNKNOWN, Reason.NO_SANITIZER)
    assert result.reason.startswith("no compute-sanitizer found in CUDA_HOME, CUDA_PATH, PATH and /usr/local/cuda*")
    held = replace(result, verdict=PASS, why=None)
    assert not_green([result.as_dict(), held.as_dict()], Asked(named=True)) == ""


def test_an_implementation_of_pytorchs_operators_is_refused_after_a_few_looks(installed, monkeypatch, few_tried):
    installed(runs=False)
    looks = []
    have_kernels(monkeypatch, lambda trial: looks.append(trial.case) or [])
    for examples in (4, 3000):
        looks.clear()
        result = judged(examples=examples)
        assert (result.verdict, result.why) == (REFUSED, Reason.NO_CASE)
        assert result.reason == "launches only kernels of PyTorch's operators in 5 cases"
        assert test_races.MOST_LOOKS <= len(looks) <= test_races.MOST_LOOKS + 2 * sanitized.TOGETHER


def test_one_case_without_kernels_does_not_end_the_law(installed, monkeypatch):
    """An implementation may delegate some cases to PyTorch."""
    installed(runs=False)
    kernels = iter([[], ["forward"], [], ["backward"]])
    have_kernels(monkeypatch, lambda trial: next(kernels, []))
    result = judged(examples=200)
    assert (result.verdict, result.cases) == (PASS, 2)
    assert result.reason == "nothing reported for 2 cases of backward, forward"


@pytest.fixture
def programs(monkeypatch):
    """Record the cases of each start of the tools."""
    started, command = [], alone.command

    def noted(device, name, cases, options):
        started.append(cases)
        return command(device, name, cases, options)

    monkeypatch.setattr(alone, "command", noted)
    return started


def test_cases_without_a_finding_share_their_processes(installed, programs):
    installed(runs=False)
    result = judged(examples=600)
    assert (result.verdict, result.cases) == (PASS, 6)
    assert [len(cases) for cases in programs] == [sanitized.TOGETHER, 2]
    assert len({case for cases in programs for case in cases}) == 6


def test_a_case_beside_one_with_a_finding_is_watched_alone(installed, programs):
    installed(runs=False, racecheck=(LOGS / "racecheck.log").read_text())
    assert judged(goes_on=False).verdict == FAIL
    assert len(programs[0]) == 2 and {len(cases) for cases in programs[1:]} == {1}


def test_what_no_case_shows_by_itself_is_a_finding(installed, monkeypatch, tmp_path):
    """A larger case may overrun scratch memory that a smaller one has allocated."""
    command, log = alone.command, (LOGS / "racecheck.log").read_text()

    def reported_of_several(device, name, cases, options):
        fake(tmp_path, runs=False, **({"racecheck": log} if len(cases) > 1 else {}))
        return command(device, name, cases, options)

    installed()
    monkeypatch.setattr(alone, "command", reported_of_several)
    result = judged()
    assert result.verdict == FAIL and result.reason.startswith("not on every run: race: shared memory, ")
    observed = lines(result.message)
    after = observed.index("with these cases called one after another in one process")
    assert all(line.startswith("seqlen_q=") for line in observed[after + 1 : after + 3])


def test_a_call_that_raises_once_is_a_finding(installed, monkeypatch):
    installed(runs=False)
    errors = [LawBroken("forward raises RuntimeError: no")]

    def kernels_of(trial):
        if errors:
            raise errors.pop()
        return ["forward"]

    have_kernels(monkeypatch, kernels_of)
    result = judged()
    assert (result.verdict, result.reason) == (FAIL, "not on every run: forward raises RuntimeError: no")


def test_memory_that_runs_out_beside_other_cases_leaves_each_to_itself(installed, programs, monkeypatch):
    installed(runs=False)
    errors = [RuntimeError("CUDA out of memory. Tried to allocate 1 GiB"), None]

    def kernels_of(trial):
        if errors and (error := errors.pop(0)):
            raise error
        return ["forward"]

    have_kernels(monkeypatch, kernels_of)
    assert judged().verdict == PASS and [len(cases) for cases in programs] == [1, 1]


def test_a_watched_process_without_memory_is_started_again(installed, monkeypatch):
    """Other workers hold the GPU's memory for a while. It is never a reason to call kernels wrong,
    or to leave the law undecided without another attempt.
    """
    installed()
    have_kernels(monkeypatch, lambda trial: ["forward"])
    full = [sys.executable, "-ISc", "print('CUDA error: out of memory\\na hint'); exit(3)"]
    targets, pauses = [full, full, [sys.executable, "-ISc", ""]], []
    wait = gpu_memory.when_memory_suffices
    monkeypatch.setattr(
        search, "when_memory_suffices", lambda device, *given, **options: wait("cuda", *given, **options)
    )
    monkeypatch.setattr(gpu_memory, "_wait", pauses.append)
    result = judged(case=CASE, alone=lambda *given: targets.pop(0))
    assert (result.verdict, targets, pauses) == (PASS, [], [1, 4])
    result = judged(case=CASE, alone=lambda *given: full)
    assert (result.verdict, result.why) == (UNKNOWN, Reason.RESOURCES)
    assert "out of memory under compute-sanitizer: CUDA error: out of memory" in result.reason


def test_a_gpu_that_is_lost_beside_other_cases_is_a_failure_with_its_case(installed, monkeypatch):
    installed(runs=False)
    works = [True]
    monkeypatch.setattr(Caller, "device_works", lambda self: works[0])

    def kernels_of(trial):
        works[0] = False
        lost_in.append(str(trial.case))
        raise LawBroken("forward raises RuntimeError: an illegal memory access")

    lost_in: list[str] = []
    have_kernels(monkeypatch, kernels_of)
    result = judged()
    assert (result.verdict, result.cases) == (FAIL, 1) and result.smallest == lost_in[0]


def test_a_call_that_raises_among_others_is_told_with_its_case(installed, monkeypatch):
    installed(runs=False)

    def kernels_of(trial):
        if trial.case.causal:
            raise LawBroken("forward raises RuntimeError: no")
        return ["forward"]

    have_kernels(monkeypatch, kernels_of)
    result = judged(examples=600)
    assert (result.verdict, result.reason) == (FAIL, "forward raises RuntimeError: no") and "causal" in result.smallest


def test_waiting_for_it_is_a_sign_of_life(installed, monkeypatch):
    """The parent would end a judging process that is silent for long outside of a call."""
    NOW.reset()  # an earlier test may have had a process that died in a call
    installed(runs=False)
    signs = []
    monkeypatch.setattr(NOW, "lives", lambda: signs.append(NOW.seen()))
    assert judged(case=CASE).verdict == PASS and signs and not any(seen.in_call for seen in signs)
    monkeypatch.undo()
    NOW.begins("properties/test_races.py::test_x[y] seqlen_q=1")
    time.sleep(1.0)
    NOW.lives()
    assert NOW.seen().seconds < 0.8


def test_the_process_ends_with_the_one_that_waits_for_it():
    """The process also ends if the tool between the two does not notice."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as judging:
        waits = f"from flash_attest.runner import alone; import time; alone.end_with({judging.pid}); print(); time.sleep(999)"
        with subprocess.Popen([sys.executable, "-uc", waits], cwd=ROOT, stdout=subprocess.PIPE) as watched:
            watched.stdout.readline()
            assert watched.poll() is None
            judging.kill()
            assert watched.wait(60) == 1
